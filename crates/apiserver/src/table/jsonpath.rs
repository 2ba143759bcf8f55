//! The JSONPath of printer columns: fields, indexes, wildcards and equality filters.

use serde_json::Value;

/// What `path` finds. `.a.b`, `.a[0]`, `.a[*].b`, `.a[?(@.type=="Ready")].status`, `.a['x.y/z']`, `.a\.b`.
pub(super) fn find<'a>(path: &str, root: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![root];
    let mut rest = path.trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let Some(end) = closing(after) else { return Vec::new() };
            found = bracket(&after[..end], found);
            rest = &after[end + 1..];
        } else {
            let (name, after) = name(rest.strip_prefix('.').unwrap_or(rest));
            if !name.is_empty() {
                found = fields(&name, found);
            }
            rest = after;
        }
    }
    found
}

/// Where the bracket closes, outside of quotes and parentheses.
fn closing(text: &str) -> Option<usize> {
    let (mut quote, mut depth) = (None, 0);
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[') => depth += 1,
            (None, ')') => depth -= 1,
            (None, ']') if depth == 0 => return Some(i),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

/// A field name up to the next dot or bracket; a backslash makes the next character part of it.
fn name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => return (name, &text[i..]),
            c => name.push(c),
        }
    }
    (name, "")
}

fn fields<'a>(name: &str, from: Vec<&'a Value>) -> Vec<&'a Value> {
    from.into_iter()
        .flat_map(|value| -> Vec<&'a Value> {
            match (value, name) {
                (Value::Object(map), "*") => map.values().collect(),
                (Value::Object(map), name) => map.get(name).into_iter().collect(),
                (Value::Array(list), "*") => list.iter().collect(),
                _ => Vec::new(),
            }
        })
        .filter(|value| !value.is_null())
        .collect()
}

fn bracket<'a>(inside: &str, from: Vec<&'a Value>) -> Vec<&'a Value> {
    let inside = inside.trim();
    if inside == "*" {
        return fields("*", from);
    }
    if let Some(condition) = inside.strip_prefix("?(").and_then(|c| c.strip_suffix(')')) {
        return from
            .into_iter()
            .filter_map(Value::as_array)
            .flatten()
            .filter(|element| holds(condition, element))
            .collect();
    }
    if let Some(quoted) = unquote(inside) {
        return fields(quoted, from);
    }
    let Ok(index) = inside.parse::<i64>() else { return Vec::new() };
    from.into_iter()
        .filter_map(|value| {
            let list = value.as_array()?;
            let length = i64::try_from(list.len()).ok()?;
            let index = if index < 0 { length + index } else { index };
            list.get(usize::try_from(index).ok()?)
        })
        .collect()
}

fn unquote(text: &str) -> Option<&str> {
    let inner = |q: char| text.strip_prefix(q).and_then(|t| t.strip_suffix(q));
    inner('\'').or_else(|| inner('"'))
}

/// `@.path == literal`, `@.path != literal`, or that `@.path` exists.
fn holds(condition: &str, element: &Value) -> bool {
    let sides = |operator: &str| {
        let (left, right) = condition.split_once(operator)?;
        Some((left.trim(), right.trim()))
    };
    let compare = |left: &str, right: &str| {
        let found = find(left.trim_start_matches('@'), element);
        let wanted = match unquote(right) {
            Some(text) => Value::from(text),
            None => serde_json::from_str(right).unwrap_or(Value::Null),
        };
        found.first().is_some_and(|found| **found == wanted)
    };
    if let Some((left, right)) = sides("==") {
        compare(left, right)
    } else if let Some((left, right)) = sides("!=") {
        !compare(left, right)
    } else {
        !find(condition.trim().trim_start_matches('@'), element).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_of_printer_columns() {
        let object = json!({
            "status": {
                "launcherStatus": "Active",
                "conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}],
            },
            "metadata": {"annotations": {"example.com/x": "y"}},
        });
        for (path, expected) in [
            (".status.launcherStatus", json!(["Active"])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type=='B')].status", json!([])),
            (".status.conditions[0].type", json!(["A"])),
            (".status.conditions[-1].type", json!(["Ready"])),
            (".status.conditions[*].type", json!(["A", "Ready"])),
            (".metadata.annotations.example\\.com/x", json!(["y"])),
            (".metadata.annotations['example.com/x']", json!(["y"])),
            (".missing.field", json!([])),
        ] {
            assert_eq!(json!(find(path, &object)), expected, "{path}");
        }
    }
}
