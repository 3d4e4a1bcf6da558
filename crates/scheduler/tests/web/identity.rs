//! Who looks sees what the command line would show him, and nobody can do more than look.

use crate::site::{Site, Size};
use pillion_test_kit::skipped;

const SMALL: Size = Size { nodes: 4, jobs: 200 };

/// Asks as the user `uid`, where we are root and may.
async fn get_as(uid: u32, site: &Site, path: &str) -> String {
    get_as_with(uid, site, path, "").await
}

/// The same with more in the head of the question, each line with its end as `printf` writes it.
async fn get_as_with(uid: u32, site: &Site, path: &str, headers: &str) -> String {
    let address = site.address;
    let script = format!(
        "exec 3<>/dev/tcp/{}/{}; printf 'GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\n{headers}Connection: close\\r\\n\\r\\n' >&3; cat <&3",
        address.ip(),
        address.port()
    );
    let output = tokio::process::Command::new("setpriv")
        .args([&format!("--reuid={uid}"), "--clear-groups", "bash", "-c", &script])
        .output()
        .await
        .expect("setpriv runs");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_sees_his_own_jobs_and_root_sees_all() {
    let Some(site) = Site::start(SMALL).await else { return };
    let all = site.get("/").await;
    assert_eq!(all.status, 200);
    for part in ["and see everybody’s jobs", "chen/", "goran/", "Saved today"] {
        assert!(all.body.contains(part), "{part}");
    }
    if !rustix::process::geteuid().is_root() {
        skipped("it asks as several users, which is root's");
        return;
    }
    let others = ["amara", "bjorn", "dalia", "emeka", "fatou", "goran", "hana"];
    for path in ["/", "/pairs", "/heatmap", "/gains?by=workload", "/gains?by=user", "/nodes/n0001"] {
        let chen = get_as(2003, &site, path).await;
        assert!(chen.contains("You look as uid 2003 and see your own jobs."), "{path}: {chen}");
        for other in others {
            assert!(!chen.contains(other), "{path} tells chen of {other}");
        }
        let nobody_known = get_as(65_534, &site, path).await;
        assert!(!nobody_known.contains("chen"), "{path}");
    }
    assert!(get_as(2003, &site, "/pairs").await.contains("chen/"), "his own");
    assert!(get_as(2003, &site, "/workloads/goran/lattice-qcd").await.starts_with("HTTP/1.1 404"));
    for foreign in [
        "/pairs?workload=chen/bert-base-b8&with=goran/lattice-qcd",
        "/pairs?workload=goran/lattice-qcd&with=chen/bert-base-b8",
        "/pairs?workload=goran/lattice-qcd",
    ] {
        let answer = get_as(2003, &site, foreign).await;
        assert!(answer.contains("No pairing matches"), "somebody finds out by asking {foreign}");
    }
}

/// By any of the names under which proxies tell who is logged in, and where from.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_header_makes_a_viewer_somebody_else() {
    let Some(site) = Site::start(SMALL).await else { return };
    if !rustix::process::geteuid().is_root() {
        skipped("it asks as several users, which is root's");
        return;
    }
    for name in ["X-Remote-User", "X-Forwarded-User", "X-Auth-Request-User", "Remote-User", "X-User", "X-Uid"]
    {
        for user in ["root", "0", "goran", "2007"] {
            let chen = get_as_with(2003, &site, "/", &format!("{name}: {user}\\r\\n")).await;
            assert!(chen.contains("You look as uid 2003 and see your own jobs."), "{name}: {user}\n{chen}");
            assert!(!chen.contains("goran"), "{name}: {user}");
        }
    }
    let elsewhere = "X-Forwarded-For: 127.0.0.1\\r\\nForwarded: for=127.0.0.1;by=root\\r\\nAuthorization: Basic cm9vdDo=\\r\\n";
    let chen = get_as_with(2003, &site, "/", elsewhere).await;
    assert!(chen.contains("You look as uid 2003 and see your own jobs."), "{chen}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_only_answers_and_says_what_is_wrong() {
    let Some(site) = Site::start(SMALL).await else { return };
    let page = site.get("/").await;
    for header in [
        "content-security-policy: default-src 'none'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
    ] {
        assert!(page.head.contains(header), "{}", page.head);
    }
    for (path, status) in [
        ("/nowhere", 404),
        ("/decisions/999999", 404),
        ("/jobs/77777", 404),
        ("/jobs/x", 400),
        ("/?state=broken", 400),
        ("/gains?since=yesterday", 400),
        ("/?node=n[1-", 400),
        ("/style.css", 200),
        ("/icon.svg", 200),
    ] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
    }
    let hostile = site.get("/workloads/%3Cscript%3Ealert(1)%3C/script%3E").await;
    assert!(hostile.status == 404 && !hostile.body.contains("<script"), "{}", hostile.body);
    let posted = site
        .ask("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .await;
    assert!(posted.status == 405 && posted.head.contains("allow: get, head"), "{}", posted.head);
    let rebound = site.ask("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await;
    assert!(rebound.status == 421 && !rebound.body.contains("chen"), "a name that was made to point here");
}

/// What users choose comes back as text, never as markup.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_stay_names() {
    let Some(site) = Site::start(SMALL).await else { return };
    let name = r#"mallory/"><script>alert(1)</script><img src=x onerror=alert(2)>"#;
    for statement in [
        "update pairing_member set workload = $1 where state = 'running'",
        "update job set workload = $1, user_name = $1 where ended_at is null",
        "update pairing_member set explanation = jsonb_set(explanation, '{text}', to_jsonb($1)) where state = 'running'",
        "update pairing_decision set abandoned_reason = $1 where state = 'released'",
    ] {
        sqlx::query(statement).bind(name).execute(site.store.pool()).await.expect("renamed");
    }
    let first = site.get("/").await.body;
    let decision =
        first.split("href=\"/decisions/").nth(1).and_then(|rest| rest.split('"').next()).expect("a decision");
    let job = first.split("href=\"/jobs/").nth(1).and_then(|rest| rest.split('"').next()).expect("a job");
    for path in
        ["/".to_owned(), format!("/decisions/{decision}"), format!("/jobs/{job}"), "/pairs".to_owned()]
    {
        let answer = site.get(&path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.body.contains("alert(1)"), "{path} does not show the name");
        assert!(
            !answer.body.contains("<script") && !answer.body.contains("<img"),
            "{path}: markup of a user's"
        );
    }
}
