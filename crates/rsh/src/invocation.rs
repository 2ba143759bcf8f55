//! The command line as mpirun writes it for a remote shell.

use crate::RshError;

/// `[options] HOST command…`, as ssh and rsh take it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    /// The pod in which the command runs.
    pub(crate) pod: String,
    /// The command line for the pod's shell: the words joined by spaces, as ssh does.
    pub(crate) command: String,
}

/// ssh options that take a value in the next word.
const WITH_VALUE: &[char] = &[
    'b', 'c', 'D', 'E', 'e', 'F', 'I', 'i', 'J', 'L', 'l', 'm', 'O', 'o', 'p', 'R', 'S', 'W', 'w',
];

impl Invocation {
    /// Reads the words after the program's name. Options of ssh are accepted and have no effect: there is no
    /// connection of that kind.
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Self, RshError> {
        let mut words = words.peekable();
        while let Some(option) = words.next_if(|word| word.starts_with('-')) {
            if option == "--" {
                break;
            }
            // `-p 22` takes the next word, `-p22` and `-x` do not.
            let flag = option.chars().nth(1);
            if option.chars().count() == 2 && flag.is_some_and(|c| WITH_VALUE.contains(&c)) {
                words.next();
            }
        }
        let host = words.next().ok_or_else(|| RshError::Usage("no pod is named".to_owned()))?;
        // A hostfile may say user@host and a pod's domain; the pod's name is what counts.
        let pod = host.rsplit('@').next().unwrap_or(&host).split('.').next().unwrap_or_default();
        if pod.is_empty() {
            return Err(RshError::Usage(format!("{host:?} names no pod")));
        }
        let command = words.collect::<Vec<_>>().join(" ");
        if command.is_empty() {
            return Err(RshError::Usage(format!("no command for pod {pod}")));
        }
        Ok(Self { pod: pod.to_owned(), command })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Invocation, RshError> {
        Invocation::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_forms_of_every_launcher() {
        let cases = [
            (
                "job-worker-0 PATH=/usr/bin orted -mca ess env",
                "job-worker-0",
                "PATH=/usr/bin orted -mca ess env",
            ),
            (
                "-x job-worker-1 hydra_pmi_proxy --rmk user",
                "job-worker-1",
                "hydra_pmi_proxy --rmk user",
            ),
            ("-q -o StrictHostKeyChecking=no -p 22 -p2222 root@w.ns.svc true", "w", "true"),
            ("-- w echo -n x", "w", "echo -n x"),
        ];
        for (line, pod, command) in cases {
            let parsed = parse(line).unwrap();
            assert_eq!((parsed.pod.as_str(), parsed.command.as_str()), (pod, command), "{line}");
        }
    }

    #[test]
    fn what_names_no_pod_or_no_command_is_a_usage_error() {
        for line in ["", "-x", "-p 22", "job-worker-0", "@ true"] {
            assert!(matches!(parse(line), Err(RshError::Usage(_))), "{line}");
        }
    }
}
