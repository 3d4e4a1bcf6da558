//! The page in a real browser (Debian's Chromium, headless): its links, its order of focus, and what it becomes light, dark and
//! narrow. The pictures in docs/screenshots are of a real run: `tests/screenshots` makes them.

use crate::site::{Site, Size};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SITE: Size = Size { nodes: 8, jobs: 6_000 };
/// How long the browser may take for one page.
const PATIENCE: Duration = Duration::from_secs(90);

/// One picture.
struct Shot {
    name: &'static str,
    path: &'static str,
    is_dark: bool,
    size: (u32, u32),
}

const fn shot(name: &'static str, path: &'static str, is_dark: bool, size: (u32, u32)) -> Shot {
    Shot { name, path, is_dark, size }
}

const SHOTS: [Shot; 3] = [
    shot("cluster-light", "/", false, (1280, 960)),
    shot("cluster-dark", "/", true, (1280, 960)),
    shot("cluster-narrow", "/", false, (390, 1100)),
];

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .flat_map(|folder| ["chromium", "chromium-browser"].map(|name| folder.join(name)));
    found.into_iter().find(|program| program.is_file())
}

/// Runs the browser once, in a profile of its own, and returns what it prints.
async fn browse(program: &Path, arguments: &[String]) -> String {
    let profile = tempfile::tempdir().expect("a folder");
    let command = tokio::process::Command::new(program)
        .args([
            "--headless=new",
            "--disable-gpu",
            // In a container it may be too small for a page.
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-sync",
            "--no-sandbox",
        ])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-default-apps"])
        // Whoever is asked for besides the page is not found.
        .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .env("TZ", "UTC")
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, command).await.expect("the browser ends").expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The values of an attribute, in the order of the document.
fn values<'a>(document: &'a str, attribute: &str) -> Vec<&'a str> {
    let mark = format!(" {attribute}=\"");
    document.split(&mark).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// What a page made the browser ask anybody for, from the browser's own log of the network. What the browser asks its maker of
/// its own accord names no page as the one that began it.
fn asked(log: &Path, root: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(log).expect("a log");
    let log: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let events = log["events"].as_array().cloned().unwrap_or_default();
    let of_page = events
        .iter()
        .map(|event| &event["params"])
        .filter(|params| params["initiator"].as_str().is_some_and(|initiator| initiator.starts_with(root)));
    of_page.filter_map(|params| params["url"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_browser_every_link_leads_somewhere_and_nobody_else_is_asked() {
    let Some(program) = browser() else {
        pillion_test_kit::skipped("there is no chromium");
        return;
    };
    let Some(site) = Site::start(SITE).await else { return };
    let root = format!("http://{}", site.address);
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("network.json");
    let log_argument = format!("--log-net-log={}", log.display());
    let document =
        browse(&program, &["--dump-dom".to_owned(), log_argument, format!("{root}/heatmap")]).await;
    assert!(
        document.contains("Pairs that gained most") && document.contains("class=\"heat s0\""),
        "{document}"
    );
    let asked = asked(&log, &root);
    assert!(asked.iter().any(|url| url.ends_with("/style.css")), "{asked:?}");
    let elsewhere: Vec<&String> = asked.iter().filter(|url| !url.starts_with(&root)).collect();
    assert!(elsewhere.is_empty(), "the page asks {elsewhere:?}");

    // The pair that gained most leads to its pairings.
    let best =
        document.split("class=\"examples\"").nth(1).map(|rest| values(rest, "href")).unwrap_or_default();
    let pairings = site.get(&best.first().expect("a pair").replace("&amp;", "&")).await;
    assert!(pairings.status == 200 && pairings.body.contains("/decisions/"), "{}", pairings.body);

    // Focus goes the way of the document, and first past the navigation.
    assert!(!document.contains("tabindex=\"1\""));
    let links = values(&document, "href");
    let order: Vec<&str> =
        links.iter().copied().filter(|href| *href != "/style.css" && *href != "/icon.svg").take(8).collect();
    assert_eq!(order, ["#main", "/", "/", "/gains", "/heatmap", "/pairs", "/queue", "/idle"]);
    assert_eq!(document.matches("aria-current=\"page\"").count(), 1);
    assert_eq!((document.matches("<h1").count(), document.matches("<main").count()), (1, 1));

    let mut answers: BTreeMap<String, u16> = BTreeMap::new();
    for page in ["/", "/gains", "/pairs", "/queue", "/idle", "/heatmap"] {
        let body = site.get(page).await.body;
        assert!(values(&body, "src").is_empty(), "{page} loads something");
        for href in values(&body, "href").into_iter().filter(|href| *href != "#main").take(120) {
            assert!(href.starts_with('/') && !href.starts_with("//"), "{page} leads elsewhere: {href}");
            let href = href.replace("&amp;", "&");
            if !answers.contains_key(&href) && answers.len() < 200 {
                let status = site.get(&href).await.status;
                answers.insert(href, status);
            }
        }
    }
    let dead: Vec<_> = answers.iter().filter(|(_, status)| **status != 200).collect();
    assert!(dead.is_empty(), "links that lead nowhere: {dead:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_can_be_made_light_dark_and_narrow() {
    let Some(program) = browser() else {
        pillion_test_kit::skipped("there is no chromium");
        return;
    };
    let Some(site) = Site::start(SITE).await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for shot in SHOTS {
        let (width, height) = shot.size;
        let file = folder.path().join(format!("{}.png", shot.name));
        // In Blink 0 is dark, 1 is light.
        let scheme = u8::from(!shot.is_dark);
        let arguments = [
            format!("--window-size={width},{height}"),
            format!("--blink-settings=preferredColorScheme={scheme}"),
            format!("--screenshot={}", file.display()),
            format!("http://{}{}", site.address, shot.path),
        ];
        browse(&program, &arguments).await;
        let picture = std::fs::read(&file).expect("a picture");
        assert!(picture.starts_with(b"\x89PNG"), "{}", shot.name);
        // Width of the header chunk: PNG, section 11.2.2.
        let drawn = picture.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
        assert_eq!(drawn, Some(width), "{}", shot.name);
    }
}
