//! The reader of `nvidia-smi topo -m`, of any age, and of its AMD kin.
//!
//! The text is a table: a header of device names, a row for each GPU and NIC. Between releases its columns changed
//! from spaces to tabs, SYS was once SOC, NICs are called after the driver (`mlx5_0`) or numbered (`NIC0`, with a
//! legend), and the affinity columns came one by one. A cell holds a link count (`NV2`, `XG4`, `XGMI`) or a PCIe level.

use std::collections::BTreeMap;

use crate::{GpuSet, Nic, PcieLevel, Product, Topology};

/// What is wrong with a topology text, and where.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {problem}", location(.line))]
pub struct MatrixError {
    /// The file, or what the text was called.
    pub file: String,
    /// Line of the text, from 1, where there is one.
    pub line: Option<usize>,
    /// What is wrong; names row and column.
    pub problem: MatrixProblem,
}

fn location(line: &Option<usize>) -> String {
    line.map(|line| format!(":{line}")).unwrap_or_default()
}

/// What can be wrong with a link matrix.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatrixProblem {
    /// No line names GPU columns.
    #[error("no header line with GPU columns (GPU0, GPU1, …)")]
    NoHeader,
    /// More GPUs than a [`GpuSet`] holds.
    #[error("{0} GPUs; at most 64 are supported")]
    TooMany(usize),
    /// Columns do not count from GPU0 up.
    #[error("column {column} is not where GPU{expected} belongs")]
    Columns {
        /// What the header says.
        column: String,
        /// The index that was due.
        expected: usize,
    },
    /// A GPU has no row.
    #[error("row GPU{0} is missing")]
    RowMissing(usize),
    /// A GPU has two rows.
    #[error("row GPU{0} is there twice")]
    RowTwice(usize),
    /// A row ends before its last column.
    #[error("row {row} is cut: column {column} is missing")]
    Cut {
        /// Row's device.
        row: String,
        /// First column without a cell.
        column: String,
    },
    /// A cell holds no link name.
    #[error(
        "row {row}, column {column}: {cell:?} is no link name (NVn, XGn, PIX, PXB, PHB, NODE, SYS, X)"
    )]
    UnknownLink {
        /// Row's device.
        row: String,
        /// Column's device.
        column: String,
        /// What stands there.
        cell: String,
    },
    /// A cell and its mirror image differ.
    #[error("row {row}, column {column} says {cell}, but row {column}, column {row} says {mirror}")]
    Contradiction {
        /// Row's device.
        row: String,
        /// Column's device.
        column: String,
        /// The cell.
        cell: String,
        /// The mirror cell.
        mirror: String,
    },
    /// A GPU is joined to itself.
    #[error("row {row}, column {row}: {cell:?} on the diagonal, where X belongs")]
    Diagonal {
        /// The device.
        row: String,
        /// What stands there.
        cell: String,
    },
}

/// One cell of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Itself,
    Links(u32),
    Level(PcieLevel),
}

impl Cell {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "X" | "0" => return Some(Self::Itself),
            "XGMI" => return Some(Self::Links(1)),
            _ => {}
        }
        let count = word.strip_prefix("NV").or_else(|| word.strip_prefix("XG"));
        match count {
            Some(count) => count.parse().ok().filter(|&links| links > 0).map(Self::Links),
            None => word.parse().ok().map(Self::Level),
        }
    }
}

/// Text without terminal colour codes.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            out.push(c);
            continue;
        }
        // ESC [ parameters letter
        for c in chars.by_ref().skip(1) {
            if c.is_ascii_alphabetic() {
                break;
            }
        }
    }
    out
}

fn gpu_index(word: &str) -> Option<usize> {
    word.strip_prefix("GPU")?.parse().ok()
}

/// The device columns of a header, and whether a CPU and a NUMA column follow.
struct Header<'a> {
    devices: Vec<&'a str>,
    cpu: bool,
    numa: bool,
}

impl<'a> Header<'a> {
    /// The header names a GPU and holds no cell; a network card may stand before the GPUs.
    fn parse(line: &'a str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.iter().find(|word| gpu_index(word).is_some())?;
        if words.iter().any(|word| Cell::parse(word).is_some()) {
            return None;
        }
        // "CPU Affinity", "NUMA Affinity" and "GPU NUMA ID" end the devices.
        let end =
            words.iter().position(|w| matches!(*w, "CPU" | "NUMA" | "GPU")).unwrap_or(words.len());
        let (devices, rest) = words.split_at(end);
        // "GPU NUMA ID" is another NUMA column than the one we read.
        let numa = rest
            .iter()
            .enumerate()
            .any(|(i, w)| *w == "NUMA" && (i == 0 || rest.get(i - 1) != Some(&"GPU")));
        Some(Self { devices: devices.to_vec(), cpu: rest.contains(&"CPU"), numa })
    }
}

impl Topology {
    /// Reads `nvidia-smi topo -m` or one of its kin. `file` is the name for errors; `product` is what the GPUs are,
    /// and is inferred from their links when nobody says so.
    ///
    /// # Errors
    /// A cut, contradictory or unreadable matrix, by file, line, row and column.
    pub fn from_topo_m(
        text: &str,
        file: &str,
        product: Option<Product>,
    ) -> Result<Self, MatrixError> {
        let text = plain(text);
        let fail =
            |line: Option<usize>, problem| MatrixError { file: file.to_owned(), line, problem };
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let (header_line, header) = lines
            .by_ref()
            .find_map(|(number, line)| Some((number, Header::parse(line)?)))
            .ok_or_else(|| fail(None, MatrixProblem::NoHeader))?;
        let gpus = header.devices.iter().filter(|d| gpu_index(d).is_some()).count();
        if gpus > GpuSet::CAPACITY {
            return Err(fail(Some(header_line), MatrixProblem::TooMany(gpus)));
        }
        let named = header.devices.iter().filter(|d| gpu_index(d).is_some());
        if let Some((expected, column)) = named.enumerate().find(|(i, d)| gpu_index(d) != Some(*i))
        {
            return Err(fail(
                Some(header_line),
                MatrixProblem::Columns { column: (*column).to_owned(), expected },
            ));
        }

        let mut cells = vec![Vec::new(); gpus];
        let mut numbers = vec![0; gpus];
        let mut nics: Vec<Nic> = header
            .devices
            .iter()
            .filter(|device| gpu_index(device).is_none())
            .map(|name| Nic {
                name: (*name).to_owned(),
                levels: vec![None; gpus],
                bandwidth: None,
                rdma: true,
            })
            .collect();
        let mut numa = vec![None; gpus];
        let mut amd = false;
        let mut legend = BTreeMap::new();
        for (number, line) in lines {
            let mut words = line.split_whitespace();
            let row = words.next().unwrap_or_default();
            let Some(gpu) = gpu_index(row) else {
                // "NIC0: mlx5_0", the legend of numbered network cards.
                if let (Some(number), Some(name)) = (row.strip_suffix(':'), words.next()) {
                    legend.insert(number.to_owned(), name.to_owned());
                }
                continue;
            };
            let Some(row_cells) = cells.get_mut(gpu) else {
                return Err(fail(
                    Some(number),
                    MatrixProblem::Columns { column: row.to_owned(), expected: gpus },
                ));
            };
            if !row_cells.is_empty() {
                return Err(fail(Some(number), MatrixProblem::RowTwice(gpu)));
            }
            let mut nic = 0;
            for column in &header.devices {
                let at = || (row.to_owned(), (*column).to_owned());
                let word = words.next().ok_or_else(|| {
                    let (row, column) = at();
                    fail(Some(number), MatrixProblem::Cut { row, column })
                })?;
                let cell = Cell::parse(word).ok_or_else(|| {
                    let (row, column) = at();
                    fail(
                        Some(number),
                        MatrixProblem::UnknownLink { row, column, cell: word.to_owned() },
                    )
                })?;
                amd |= word.starts_with("XG");
                if gpu_index(column).is_some() {
                    row_cells.push((cell, word.to_owned()));
                } else {
                    if let (Some(nic), Cell::Level(level)) = (nics.get_mut(nic), cell) {
                        nic.levels[gpu] = Some(level);
                    }
                    nic += 1;
                }
            }
            numbers[gpu] = number;
            if header.cpu {
                words.next();
            }
            if header.numa {
                // "0-1" stands for a virtual machine that hides the boundary.
                numa[gpu] = words.next().and_then(|word| word.parse().ok());
            }
        }
        if let Some(missing) = cells.iter().position(Vec::is_empty) {
            return Err(fail(None, MatrixProblem::RowMissing(missing)));
        }

        let mut links = vec![vec![0; gpus]; gpus];
        let mut pcie = vec![vec![None; gpus]; gpus];
        for a in 0..gpus {
            for b in 0..gpus {
                let (cell, word) = &cells[a][b];
                let (mirror, mirror_word) = &cells[b][a];
                let name = |gpu: usize| format!("GPU{gpu}");
                if (a == b) != (*cell == Cell::Itself) {
                    let problem = if a == b {
                        MatrixProblem::Diagonal { row: name(a), cell: word.clone() }
                    } else {
                        MatrixProblem::UnknownLink {
                            row: name(a),
                            column: name(b),
                            cell: word.clone(),
                        }
                    };
                    return Err(fail(Some(numbers[a]), problem));
                }
                if cell != mirror {
                    let problem = MatrixProblem::Contradiction {
                        row: name(a),
                        column: name(b),
                        cell: word.clone(),
                        mirror: mirror_word.clone(),
                    };
                    return Err(fail(Some(numbers[a]), problem));
                }
                match *cell {
                    Cell::Itself => {}
                    Cell::Links(count) => links[a][b] = count,
                    Cell::Level(level) => pcie[a][b] = Some(level),
                }
            }
        }
        for nic in &mut nics {
            if let Some(name) = legend.remove(&nic.name) {
                nic.name = name;
            }
        }
        let inferred = Self::infer_product(&links, amd);
        Ok(Self {
            product: product.unwrap_or(inferred),
            product_inferred: product.is_none(),
            links,
            pcie,
            nics,
            numa,
            healthy: GpuSet::first(gpus),
        })
    }

    /// The matrix as `nvidia-smi topo -m` prints it, NICs included.
    pub fn to_topo_m(&self) -> String {
        let mut out = String::new();
        for gpu in 0..self.len() {
            out.push_str(&format!("\tGPU{gpu}"));
        }
        for nic in &self.nics {
            out.push_str(&format!("\t{}", nic.name));
        }
        out.push_str("\tNUMA Affinity\n");
        for a in 0..self.len() {
            out.push_str(&format!("GPU{a}"));
            for b in 0..self.len() {
                out.push_str(&format!("\t{}", self.link_name(a, b)));
            }
            for nic in &self.nics {
                let level = nic.levels.get(a).copied().flatten();
                out.push_str(&format!("\t{}", level.unwrap_or(PcieLevel::Sys)));
            }
            match self.numa.get(a).copied().flatten() {
                Some(numa) => out.push_str(&format!("\t{numa}\n")),
                None => out.push_str("\tN/A\n"),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Topology, MatrixError> {
        Topology::from_topo_m(text, "m.txt", None)
    }

    #[test]
    fn every_dialect_of_one_machine_reads_alike() {
        let tabs = "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity\n\
                    GPU0\t X \tNV2\tPIX\t0-3\t0\nGPU1\tNV2\t X \tSYS\t4-7\t1\nmlx5_0\tPIX\tSYS\t X \n";
        let spaces = "       GPU0  GPU1  mlx5_0  CPU Affinity  NUMA Affinity\n\
                      GPU0   X    NV2   PIX   0-3  0\nGPU1   NV2   X    SOC   4-7  1\n\nLegend:\n  X = Self\n";
        let nic_first = "GPU0 mlx5_0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X PIX NV2 0-3 0\nGPU1 NV2 SYS X 4-7 1\n";
        let coloured = "\t\u{1b}[4mGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity\u{1b}[0m\n\
                        GPU0\t X \tNV2\tPIX\t0-3\t0\nGPU1\tNV2\t X \tSYS\t4-7\t1\n";
        let expected = read(tabs).unwrap();
        assert_eq!(expected.numa, [Some(0), Some(1)]);
        assert_eq!(expected.nics[0].levels, [Some(PcieLevel::Pix), Some(PcieLevel::Sys)]);
        let leading_nic = "mlx5_0 GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 PIX X NV2 0-3 0\nGPU1 SYS NV2 X 4-7 1\n";
        let legend = format!("{}\nNIC Legend:\n\n  NIC0: mlx5_0\n", tabs.replace("mlx5_0", "NIC0"));
        for other in [spaces, nic_first, leading_nic, coloured, legend.as_str()] {
            assert_eq!(read(other).unwrap(), expected, "{other}");
        }
        assert_eq!(read(&expected.to_topo_m()).unwrap(), expected);
    }

    #[test]
    fn bad_matrices_are_named_by_row_and_column() {
        for (text, message) in [
            ("nothing here", "m.txt: no header line with GPU columns (GPU0, GPU1, …)"),
            ("GPU0 GPU1\nGPU0 X NV2\n", "m.txt: row GPU1 is missing"),
            ("GPU0 GPU1\nGPU0 X NV2\nGPU0 X NV2\n", "m.txt:3: row GPU0 is there twice"),
            (
                "GPU0 GPU1\nGPU0 X NV2\nGPU1 NV2\n",
                "m.txt:3: row GPU1 is cut: column GPU1 is missing",
            ),
            ("GPU0 GPU2\nGPU0 X NV2\n", "m.txt:1: column GPU2 is not where GPU1 belongs"),
            (
                "GPU0 GPU1\nGPU0 X NV2\nGPU1 NV1 X\n",
                "m.txt:2: row GPU0, column GPU1 says NV2, but row GPU1, column GPU0 says NV1",
            ),
            (
                "GPU0 GPU1\nGPU0 X FOO\nGPU1 NV1 X\n",
                "m.txt:2: row GPU0, column GPU1: \"FOO\" is no link name (NVn, XGn, PIX, PXB, PHB, NODE, SYS, X)",
            ),
            (
                "GPU0 GPU1\nGPU0 NV1 NV2\nGPU1 NV2 X\n",
                "m.txt:2: row GPU0, column GPU0: \"NV1\" on the diagonal, where X belongs",
            ),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), message);
        }
    }
}
