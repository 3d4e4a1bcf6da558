//! Debian's Chromium, headless, on the machine itself: what a page becomes in it.

use pillion_tests::process::Program;

/// How long it may take for one page, in seconds.
const PATIENCE_SECONDS: &str = "90";

/// The document that the browser makes of what is at an address.
pub(crate) fn document(address: &str) -> String {
    let profile = tempfile::tempdir().unwrap();
    let browser = Program::new("timeout")
        .args([PATIENCE_SECONDS, "chromium", "--headless=new", "--no-sandbox", "--disable-gpu"])
        // In a container /dev/shm may be too small for a page.
        .args(["--disable-dev-shm-usage", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-default-apps"])
        // Whoever is asked for besides the page is not found.
        .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--dump-dom", address])
        .inherit_environment();
    browser.stdout().unwrap_or_else(|error| panic!("{address} in chromium: {}", pillion_core::report(&error)))
}

/// What a reader sees of a piece of a document: without tags.
pub(crate) fn text(html: &str) -> String {
    let pieces = html.split('<').enumerate().map(|(at, piece)| match piece.split_once('>') {
        Some((_, text)) if at > 0 => text,
        _ => piece,
    });
    let text: String = pieces.collect::<Vec<_>>().join(" ").replace("&amp;", "&").replace("&nbsp;", " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What stands between two marks, the first time; empty where it does not.
pub(crate) fn between<'a>(html: &'a str, from: &str, to: &str) -> &'a str {
    let rest = html.split_once(from).map_or("", |(_, rest)| rest);
    rest.split_once(to).map_or(rest, |(inside, _)| inside)
}
