//! Label and field selectors.

use serde_json::Value;

use crate::field;
use crate::resource::Resource;
use crate::status::Status;
use crate::store::selectable;

/// A label selector: requirements that must all hold.
#[derive(Debug)]
pub(crate) struct Labels(Vec<Requirement>);

#[derive(Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    /// Also holds where there is no such label.
    NotIn(Vec<String>),
    Exists,
    Missing,
    Greater(i64),
    Less(i64),
}

/// A piece of a selector's text.
#[derive(Debug, PartialEq, Eq, Clone)]
enum Token {
    Word(String),
    Symbol(&'static str),
}

fn tokens(text: &str) -> Vec<Token> {
    const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let ends = |c: char| c.is_whitespace() || "=!(),<>".contains(c);
            let (word, after) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
            tokens.push(Token::Word(word.to_owned()));
            rest = after;
        }
        rest = rest.trim_start();
    }
    tokens
}

struct Parser {
    tokens: std::vec::IntoIter<Token>,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.as_slice().first()
    }

    fn take(&mut self, symbol: &'static str) -> bool {
        let is_next = self.peek() == Some(&Token::Symbol(symbol));
        if is_next {
            self.tokens.next();
        }
        is_next
    }

    fn found(&self) -> String {
        match self.peek() {
            Some(Token::Word(word)) => word.clone(),
            Some(Token::Symbol(symbol)) => (*symbol).to_owned(),
            None => String::new(),
        }
    }

    fn word(&mut self) -> Option<String> {
        match self.tokens.as_slice().first() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.tokens.next();
                Some(word)
            }
            _ => None,
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let is_missing = self.take("!");
        let key =
            self.word().ok_or_else(|| format!("found '{}', expected: identifier", self.found()))?;
        check_key(&key)?;
        if is_missing {
            return Ok(Requirement { key, operator: Operator::Missing });
        }
        let operator = match self.peek().cloned() {
            None | Some(Token::Symbol(",")) => Operator::Exists,
            Some(Token::Symbol("=" | "==")) => {
                self.tokens.next();
                Operator::In(vec![self.value()?])
            }
            Some(Token::Symbol("!=")) => {
                self.tokens.next();
                Operator::NotIn(vec![self.value()?])
            }
            Some(Token::Symbol(symbol @ (">" | "<"))) => {
                self.tokens.next();
                let text = self.value()?;
                let number = text.parse().map_err(|_| {
                    format!(
                        "for 'Gt', 'Lt' operators, the value must be an integer, found {text:?}"
                    )
                })?;
                if symbol == ">" { Operator::Greater(number) } else { Operator::Less(number) }
            }
            Some(Token::Word(word)) if word == "in" || word == "notin" => {
                self.tokens.next();
                let values = self.values()?;
                if word == "in" { Operator::In(values) } else { Operator::NotIn(values) }
            }
            Some(_) => {
                let known = "in, notin, =, ==, !=, gt, lt";
                return Err(format!("found '{}', expected: {known}", self.found()));
            }
        };
        Ok(Requirement { key, operator })
    }

    /// A value; nothing is the empty one.
    fn value(&mut self) -> Result<String, String> {
        let value = self.word().unwrap_or_default();
        check_value(&value)?;
        Ok(value)
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        if !self.take("(") {
            return Err(format!("found '{}', expected: '('", self.found()));
        }
        let mut values = vec![self.value()?];
        while self.take(",") {
            values.push(self.value()?);
        }
        if !self.take(")") {
            return Err(format!("found '{}', expected: ',' or ')'", self.found()));
        }
        Ok(values)
    }
}

/// A label's key: a name of at most 63 characters, after a domain and a slash perhaps.
fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(p, name)| (Some(p), name));
    let is_domain = |domain: &str| {
        !domain.is_empty()
            && domain.len() <= 253
            && domain
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.')
    };
    if name.is_empty() || !is_name(name) || prefix.is_some_and(|prefix| !is_domain(prefix)) {
        return Err(format!(
            "key: Invalid value: {key:?}: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
        ));
    }
    Ok(())
}

fn check_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err(format!(
        "values[0][value]: Invalid value: {value:?}: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    ))
}

fn is_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.len() <= 63
        && name.chars().all(is_inner)
        && is_edge(name.chars().next())
        && is_edge(name.chars().next_back())
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
            Operator::Exists => value.is_some(),
            Operator::Missing => value.is_none(),
            Operator::Greater(bound) => number().is_some_and(|number| number > *bound),
            Operator::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

impl Labels {
    /// # Errors
    /// `BadRequest`, with upstream's words for what was found and expected.
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        let unable =
            |why: String| Status::bad_request(format!("unable to parse requirement: {why}"));
        let mut parser = Parser { tokens: tokens(text).into_iter() };
        let mut requirements = Vec::new();
        while parser.peek().is_some() {
            requirements.push(parser.requirement().map_err(unable)?);
            if parser.peek().is_some() && !parser.take(",") {
                return Err(unable(format!(
                    "found '{}', expected: ',' or 'end of string'",
                    parser.found()
                )));
            }
        }
        Ok(Self(requirements))
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|requirement| requirement.holds(labels[&requirement.key].as_str()))
    }
}

/// A field selector: paths that must, or must not, have a value.
#[derive(Debug)]
pub(crate) struct Fields(Vec<Term>);

#[derive(Debug, PartialEq, Eq)]
struct Term {
    path: String,
    value: String,
    is_equal: bool,
}

impl Fields {
    /// # Errors
    /// `BadRequest` for a term without `=`.
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        let terms = split(text).into_iter().filter(|term| !term.is_empty()).map(|term| {
            let unequal = term.split_once("!=").map(|(path, value)| (path, value, false));
            let equal = || term.split_once("==").or_else(|| term.split_once('='));
            let (path, value, is_equal) = unequal
                .or_else(|| equal().map(|(path, value)| (path, value, true)))
                .ok_or_else(|| {
                    Status::bad_request(format!(
                        "invalid selector: '{text}'; can't understand '{term}'"
                    ))
                })?;
            Ok(Term { path: path.trim().to_owned(), value: unescape(value), is_equal })
        });
        Ok(Self(terms.collect::<Result<_, Status>>()?))
    }

    /// # Errors
    /// `BadRequest`, in upstream's words, for a field that the kind is not selected by.
    pub(crate) fn check(&self, resource: &Resource) -> Result<(), Status> {
        let known = selectable(&resource.storage);
        for term in &self.0 {
            let path = term.path.as_str();
            let is_name = path == "metadata.name" || path == "metadata.namespace";
            if !is_name && !known.contains(&path) {
                return Err(Status::bad_request(format!("field label not supported: {path}")));
            }
        }
        Ok(())
    }

    /// The value that the field must have, if exactly one is asked for.
    pub(crate) fn exactly(&self, path: &str) -> Option<&str> {
        let term = self.0.iter().find(|term| term.path == path && term.is_equal)?;
        Some(term.value.as_str()).filter(|value| !value.is_empty())
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| {
            let path: Vec<&str> = term.path.split('.').collect();
            let is_same = match field::at(object, &path) {
                Value::String(text) => *text == term.value,
                Value::Null if term.value == "false" || term.value == "0" => true,
                Value::Null => term.value.is_empty(),
                Value::Bool(value) => value.to_string().as_str() == term.value,
                _ => false,
            };
            is_same == term.is_equal
        })
    }
}

/// Splits at commas that no backslash precedes.
fn split(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut from, mut is_escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if c == ',' && !is_escaped {
            terms.push(&text[from..at]);
            from = at + 1;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    terms.push(&text[from..]);
    terms
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors() {
        let object = json!({"metadata": {"labels": {"a": "x", "n": "5", "d.io/k": ""}}});
        for (text, expected) in [
            ("", true),
            ("a", true),
            ("b", false),
            ("!a", false),
            ("!b", true),
            ("a=x", true),
            ("a==x,n=5", true),
            ("a = y", false),
            ("a!=y", true),
            ("b!=y", true),
            ("a in (y, x)", true),
            ("a notin (y,x)", false),
            ("b notin (y)", true),
            ("b in (y)", false),
            ("d.io/k=", true),
            ("d.io/k", true),
            ("n>4", true),
            ("n<5", false),
            ("a>4", false),
        ] {
            assert_eq!(Labels::parse(text).unwrap().matches(&object), expected, "{text}");
        }
        for text in ["a in x", "a in (x", "=x", "a x", "a=x y", "a>x", "-a", "a=-x", "a,,b"] {
            assert!(Labels::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn field_selectors() {
        let object = json!({
            "metadata": {"name": "p", "namespace": "d"},
            "spec": {"hostNetwork": true}, "status": {"phase": "Running"},
        });
        for (text, expected) in [
            ("metadata.name=p", true),
            ("metadata.name!=p", false),
            ("spec.nodeName=", true),
            ("spec.nodeName!=", false),
            ("status.phase=Running,metadata.namespace==d", true),
            ("spec.hostNetwork=true", true),
            ("metadata.name=a\\,b", false),
        ] {
            assert_eq!(Fields::parse(text).unwrap().matches(&object), expected, "{text}");
        }
        assert!(Fields::parse("metadata.name").is_err());
        assert_eq!(Fields::parse("spec.nodeName=n").unwrap().exactly("spec.nodeName"), Some("n"));
        assert_eq!(Fields::parse("spec.nodeName=").unwrap().exactly("spec.nodeName"), None);
    }
}
