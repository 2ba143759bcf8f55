//! A set of GPUs of one node, as a bit set.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of GPU indices (0–63) of one node. Bit *i* stands for GPU *i* of `nvidia-smi`'s numbering.
///
/// Written and read as a comma list in ascending order (`0,3,5`), the form of ACK's annotations.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GpuSet(u64);

impl GpuSet {
    /// The most GPUs a node can have.
    pub const CAPACITY: usize = 64;
    /// No GPU.
    pub const EMPTY: Self = Self(0);

    /// The GPUs `0..count`. Panics when `count` exceeds [`Self::CAPACITY`].
    pub const fn first(count: usize) -> Self {
        assert!(count <= Self::CAPACITY, "a node has at most 64 GPUs");
        if count == 64 { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    /// The one GPU `index`. Panics when it is not below [`Self::CAPACITY`].
    pub const fn single(index: usize) -> Self {
        assert!(index < Self::CAPACITY, "a node has at most 64 GPUs");
        Self(1 << index)
    }

    /// The set whose members are the one bits of `bits`.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The members as one bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Number of members.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is no member.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether GPU `index` is a member.
    pub const fn contains(self, index: usize) -> bool {
        index < Self::CAPACITY && (self.0 >> index) & 1 == 1
    }

    /// Whether every member of `self` is one of `other`.
    pub const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Whether the two have no member in common.
    pub const fn is_disjoint(self, other: Self) -> bool {
        self.0 & other.0 == 0
    }

    /// Members of either.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Members of both.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Members of `self` that are none of `other`.
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Adds GPU `index`; false when it was a member already.
    pub const fn insert(&mut self, index: usize) -> bool {
        let new = !self.contains(index);
        self.0 |= Self::single(index).0;
        new
    }

    /// Takes GPU `index` out; false when it was no member.
    pub const fn remove(&mut self, index: usize) -> bool {
        let there = self.contains(index);
        self.0 &= !Self::single(index).0;
        there
    }

    /// The member with the lowest index.
    pub const fn lowest(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
    }

    /// Members in ascending order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = usize> + Clone {
        Members(self.0)
    }

    /// Every subset of `self` with `size` members, in ascending order of [`Self::bits`].
    pub fn subsets(self, size: usize) -> impl Iterator<Item = Self> {
        let members: Vec<usize> = self.iter().collect();
        let count = members.len();
        // Gosper's hack over positions, then positions to members: ascending positions keep bits ascending.
        let mut next = if size > count { None } else { Some(Self::first(size).0) };
        std::iter::from_fn(move || {
            let positions = next?;
            next = if positions == 0 {
                None
            } else {
                let low = positions & positions.wrapping_neg();
                positions
                    .checked_add(low)
                    .map(|ripple| ripple | (((positions ^ ripple) >> 2) / low))
                    .filter(|&n| Self(n).is_subset(Self::first(count)))
            };
            Some(Self(positions).iter().map(|p| members[p]).collect())
        })
    }
}

#[derive(Clone)]
struct Members(u64);

impl Iterator for Members {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let index = GpuSet(self.0).lowest()?;
        self.0 &= self.0 - 1;
        Some(index)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = GpuSet(self.0).len();
        (len, Some(len))
    }
}

impl ExactSizeIterator for Members {}

impl FromIterator<usize> for GpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        indices.into_iter().fold(Self::EMPTY, |set, index| set.union(Self::single(index)))
    }
}

impl fmt::Display for GpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, index) in self.iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            write!(f, "{index}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for GpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// A comma list that does not name a set of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuSetError {
    /// A field is no number below 64.
    #[error("{0:?} is not a GPU index between 0 and 63")]
    NotAnIndex(String),
    /// An index is there twice.
    #[error("GPU {0} is named twice")]
    Twice(usize),
}

impl FromStr for GpuSet {
    type Err = GpuSetError;

    fn from_str(text: &str) -> Result<Self, GpuSetError> {
        let mut set = Self::EMPTY;
        if text.trim().is_empty() {
            return Ok(set);
        }
        for field in text.split(',').map(str::trim) {
            let index = field
                .parse()
                .ok()
                .filter(|&index: &usize| index < Self::CAPACITY)
                .ok_or_else(|| GpuSetError::NotAnIndex(field.to_owned()))?;
            if !set.insert(index) {
                return Err(GpuSetError::Twice(index));
            }
        }
        Ok(set)
    }
}

/// As a list of indices: `[0, 3, 5]`.
impl Serialize for GpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for GpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut set = Self::EMPTY;
        for index in Vec::<usize>::deserialize(deserializer)? {
            if index >= Self::CAPACITY {
                return Err(serde::de::Error::custom(GpuSetError::NotAnIndex(index.to_string())));
            }
            if !set.insert(index) {
                return Err(serde::de::Error::custom(GpuSetError::Twice(index)));
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comma_lists() {
        let set: GpuSet = "5,0, 3".parse().unwrap();
        assert_eq!(set.to_string(), "0,3,5");
        assert_eq!("".parse(), Ok(GpuSet::EMPTY));
        assert_eq!("1,1".parse::<GpuSet>(), Err(GpuSetError::Twice(1)));
        for bad in ["-1", "64", "a", "1,,2"] {
            assert!(matches!(bad.parse::<GpuSet>(), Err(GpuSetError::NotAnIndex(_))), "{bad}");
        }
    }

    #[test]
    fn subsets_of_every_size_are_all_of_them_in_order() {
        let set: GpuSet = "0,2,3,7".parse().unwrap();
        let expected = [1, 4, 6, 4, 1, 0];
        for (size, count) in expected.into_iter().enumerate() {
            let subsets: Vec<GpuSet> = set.subsets(size).collect();
            assert_eq!(subsets.len(), count);
            assert!(subsets.windows(2).all(|w| w[0].bits() < w[1].bits()));
            assert!(subsets.iter().all(|s| s.len() == size && s.is_subset(set)));
        }
        assert_eq!(GpuSet::first(64).subsets(64).count(), 1);
    }
}
