//! A small shell: enough for `sh -c "echo a; sleep 1 && exit 3"`. It only says what is to be done; the kubelet does it.

use std::collections::BTreeMap;

/// One command with its words, and when it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// Depending on the exit code of the one before.
    pub(crate) when: When,
    /// The words, variables replaced.
    pub(crate) words: Vec<String>,
}

/// When a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Always.
    Always,
    /// After success.
    Succeeded,
    /// After failure.
    Failed,
}

/// What a command is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    /// Waits, in seconds; infinite for `sleep infinity`.
    Sleep(f64),
    /// Prints.
    Echo(String),
    /// Ends the shell with this code.
    Exit(u8),
    /// Does nothing, with this code.
    Nothing(u8),
    /// Copies standard input to standard output.
    Cat,
    /// Prints the environment.
    Env,
    /// Prints the host's name.
    Hostname,
    /// Prints the GPUs' links.
    Topology,
    /// A shell that reads its commands from standard input.
    Interactive,
    /// A shell within.
    Shell(Vec<Step>),
    /// Any other program.
    Program(Vec<String>),
    /// Cannot be run: the message and the code.
    Wrong(String, u8),
}

/// Splits a script at `;`, newlines, `&&` and `||`, outside quotes.
pub(crate) fn parse(script: &str, env: &BTreeMap<String, String>) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut when = When::Always;
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = script.chars().peekable();
    let end =
        |words: &mut Vec<String>, word: &mut Option<String>, when: When, steps: &mut Vec<Step>| {
            words.extend(word.take());
            if !words.is_empty() {
                steps.push(Step { when, words: std::mem::take(words) });
            }
        };
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                let word = word.get_or_insert_default();
                word.extend(chars.by_ref().take_while(|&c| c != '\''));
            }
            '"' => {
                let word = word.get_or_insert_default();
                while let Some(c) = chars.next() {
                    match c {
                        '"' => break,
                        '\\' => word.extend(chars.next()),
                        '$' => word.push_str(&variable(&mut chars, env)),
                        c => word.push(c),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            '$' => word.get_or_insert_default().push_str(&variable(&mut chars, env)),
            ';' | '\n' => {
                end(&mut words, &mut word, when, &mut steps);
                when = When::Always;
            }
            '&' if chars.peek() == Some(&'&') => {
                chars.next();
                end(&mut words, &mut word, when, &mut steps);
                when = When::Succeeded;
            }
            '|' if chars.peek() == Some(&'|') => {
                chars.next();
                end(&mut words, &mut word, when, &mut steps);
                when = When::Failed;
            }
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    end(&mut words, &mut word, when, &mut steps);
    steps
}

/// `$NAME` or `${NAME}`, after the dollar sign.
fn variable(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    env: &BTreeMap<String, String>,
) -> String {
    let mut name = String::new();
    if chars.peek() == Some(&'{') {
        chars.next();
        name.extend(chars.by_ref().take_while(|&c| c != '}'));
    } else {
        while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
            name.push(c);
        }
        if name.is_empty() {
            return "$".to_owned();
        }
    }
    env.get(&name).cloned().unwrap_or_default()
}

/// What the words of a command ask for.
pub(crate) fn command(words: &[String], env: &BTreeMap<String, String>) -> Command {
    let Some((program, arguments)) = words.split_first() else { return Command::Nothing(0) };
    let name = program.rsplit('/').next().unwrap_or(program);
    match name {
        "sleep" => match arguments.iter().map(|word| seconds(word)).sum::<Option<f64>>() {
            Some(seconds) if !arguments.is_empty() => Command::Sleep(seconds),
            _ => {
                Command::Wrong(format!("sleep: invalid time interval '{}'", arguments.join(" ")), 1)
            }
        },
        "echo" => match arguments.split_first() {
            Some((flag, rest)) if flag == "-n" => Command::Echo(rest.join(" ")),
            _ => Command::Echo(format!("{}\n", arguments.join(" "))),
        },
        "exit" => match arguments.first().map_or(Ok(0), |code| code.parse()) {
            Ok(code) => Command::Exit(code),
            Err(_) => Command::Wrong(
                format!("exit: {}: numeric argument required", arguments.join(" ")),
                2,
            ),
        },
        "true" | ":" | "cp" | "mkdir" | "cd" | "export" | "set" => Command::Nothing(0),
        "false" => Command::Nothing(1),
        "cat" if arguments.is_empty() => Command::Cat,
        "env" | "printenv" if arguments.is_empty() => Command::Env,
        "hostname" => Command::Hostname,
        "nvidia-smi" if arguments.first().is_some_and(|word| word == "topo") => Command::Topology,
        "sh" | "bash" => {
            match arguments.iter().position(|word| word.starts_with('-') && word.ends_with('c')) {
                Some(flag) => Command::Shell(
                    arguments.get(flag + 1).map(|script| parse(script, env)).unwrap_or_default(),
                ),
                None => Command::Interactive,
            }
        }
        _ => Command::Program(words.to_vec()),
    }
}

/// `1`, `0.5`, `2m`, `365d`, `infinity`.
fn seconds(word: &str) -> Option<f64> {
    if word == "infinity" {
        return Some(f64::INFINITY);
    }
    let (number, factor) = match word.char_indices().last()? {
        (at, 's') => (&word[..at], 1.0),
        (at, 'm') => (&word[..at], 60.0),
        (at, 'h') => (&word[..at], 3600.0),
        (at, 'd') => (&word[..at], 86400.0),
        _ => (word, 1.0),
    };
    number.parse::<f64>().ok().filter(|number| *number >= 0.0).map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts() {
        let env = BTreeMap::from([("A".to_owned(), "x y".to_owned())]);
        let shown = |script: &str| -> Vec<(When, String)> {
            parse(script, &env).into_iter().map(|step| (step.when, step.words.join("|"))).collect()
        };
        use When::{Always, Failed, Succeeded};
        for (script, expected) in [
            ("echo a b", vec![(Always, "echo|a|b")]),
            ("echo 'a  b';sleep 1", vec![(Always, "echo|a  b"), (Always, "sleep|1")]),
            (
                "false && echo no || echo \"yes $A\"",
                vec![(Always, "false"), (Succeeded, "echo|no"), (Failed, "echo|yes x y")],
            ),
            ("echo ${A}z $B.", vec![(Always, "echo|x yz|.")]),
            ("mpirun -np \"4\" a --b=^c", vec![(Always, "mpirun|-np|4|a|--b=^c")]),
            (" ;; ", vec![]),
        ] {
            let expected: Vec<(When, String)> =
                expected.into_iter().map(|(when, words)| (when, words.to_owned())).collect();
            assert_eq!(shown(script), expected, "{script}");
        }
    }

    #[test]
    fn commands() {
        let env = BTreeMap::new();
        let run =
            |line: &str| command(&line.split(' ').map(str::to_owned).collect::<Vec<_>>(), &env);
        assert_eq!(run("sleep 365d"), Command::Sleep(365.0 * 86400.0));
        assert_eq!(run("/bin/echo -n a"), Command::Echo("a".into()));
        assert_eq!(run("exit 7"), Command::Exit(7));
        assert!(matches!(run("sleep x"), Command::Wrong(_, 1)));
        assert!(matches!(run("python train.py"), Command::Program(_)));
        assert!(matches!(run("sh -c true"), Command::Shell(steps) if steps.len() == 1));
    }
}
