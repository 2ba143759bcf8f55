//! Fresh names, uids, tokens and timestamps.

use jiff::Timestamp;

/// Letters of generated names: no vowels and no look-alikes, as upstream.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The system's generator does not fail on any platform that Rust's standard library runs on; were it to, the
    // zeros would give a name that is taken and the request an error.
    let _ = rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes);
    bytes
}

/// A random uid (UUID version 4).
pub(crate) fn uid() -> String {
    let mut bits = u128::from_be_bytes(random());
    bits = bits & !(0xf << 76) | 0x4 << 76;
    bits = bits & !(0x3 << 62) | 0x2 << 62;
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// `base` and five random letters, cut so that the name is at most 63 long.
pub(crate) fn name(base: &str) -> String {
    let suffix: String = random::<5>()
        .iter()
        .map(|b| char::from(LETTERS[usize::from(*b) % LETTERS.len()]))
        .collect();
    let base: String = base.chars().take(58).collect();
    format!("{base}{suffix}")
}

/// A bearer token of 32 hexadecimal digits.
pub(crate) fn token() -> String {
    format!("{:032x}", u128::from_be_bytes(random()))
}

/// A number below `limit`, which must not be 0.
pub(crate) fn below(limit: u32) -> u32 {
    u32::from_be_bytes(random()) % limit.max(1)
}

/// The present, to the second, as Kubernetes writes times.
pub(crate) fn now() -> String {
    second(Timestamp::now())
}

/// A time to the second, as Kubernetes writes it.
pub(crate) fn second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_version_four() {
        let uid = uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&uid.as_bytes()[19]), "{uid}");
    }

    #[test]
    fn generated_names_keep_their_base() {
        let name = name("job-");
        assert!(name.starts_with("job-") && name.len() == 9, "{name}");
        assert_eq!(super::name(&"x".repeat(100)).len(), 63);
    }
}
