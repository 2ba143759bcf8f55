//! The commands that need no cluster, as transcripts. `TRYCMD=overwrite cargo test -p ringmaster --test transcripts`
//! writes them anew.

#[test]
fn offline() {
    let cases = trycmd::TestCases::new();
    // No kubeconfig of whoever runs the tests.
    cases.env("HOME", "/nonexistent").env("KUBECONFIG", "").env("COLUMNS", "100");
    cases.case("tests/cmd/*.trycmd");
    cases.run();
}
