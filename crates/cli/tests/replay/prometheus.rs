//! `--prometheus` against a strict double of Prometheus: it knows `query_range` and the queries that `--print-queries` prints, and
//! answers what both exporters were recorded to say.

use super::{LINE, folder, run};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

/// What the double answers to a query; `None`: no series.
pub(super) type Series = fn(query: &str, at: u64) -> Option<String>;

/// Answers questions until the test ends.
pub(super) fn double(series: Series) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("it has one"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, series);
        }
    });
    url
}

fn answer(mut stream: TcpStream, series: Series) {
    let mut head = Vec::new();
    for line in BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()) {
        head.push(line);
    }
    let first = head.first().cloned().unwrap_or_default();
    let (status, body) = answered(&first, series);
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
}

fn answered(first: &str, series: Series) -> (&'static str, String) {
    let Some(path) = first.strip_prefix("GET ").and_then(|rest| rest.strip_suffix(" HTTP/1.1")) else {
        return ("405 Method Not Allowed", String::new());
    };
    let Some(parameters) = path.strip_prefix("/api/v1/query_range?") else {
        return ("404 Not Found", "404 page not found".to_owned());
    };
    let of = |name: &str| {
        let found = parameters.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        decoded(found.unwrap_or_default())
    };
    let (query, start) = (of("query"), of("start").parse::<u64>());
    let (Ok(start), Ok(end), Ok(step)) = (start, of("end").parse::<u64>(), of("step").parse::<u64>()) else {
        return refused("invalid parameter \"start\": cannot parse \"\" to a valid timestamp");
    };
    if end < start {
        return refused("invalid parameter \"end\": end timestamp must not be before start time");
    }
    if step == 0 {
        return refused(
            "zero or negative query resolution step widths are not accepted. Try a positive integer",
        );
    }
    if (end - start) / step > 11_000 {
        return refused(
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
        );
    }
    // It knows what is asked by its text: whoever changes a query records its answer.
    if !QUERIES.contains(&query.as_str()) {
        return refused("invalid parameter \"query\": 1:1: parse error");
    }
    let points = (start..=end).step_by(usize::try_from(step).expect("a step"));
    let found: Vec<String> = points.filter_map(|at| series(&query, at)).collect();
    (
        "200 OK",
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{}]}}}}"#, found.join(",")),
    )
}

fn refused(why: &str) -> (&'static str, String) {
    let why = serde_json::json!({ "status": "error", "errorType": "bad_data", "error": why });
    ("400 Bad Request", why.to_string())
}

/// As a browser writes a query.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                let digits = String::from_utf8(digits).expect("two digits");
                bytes.push(u8::from_str_radix(&digits, 16).expect("two digits"));
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).expect("text")
}

/// What may be asked: who holds a GPU, busy time, compute units, memory bandwidth, memory, power.
const QUERIES: [&str; 6] = [
    "nvidia_gpu_jobId > 0",
    "(DCGM_FI_DEV_GPU_UTIL or nvidia_gpu_duty_cycle) / 100 or DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_PROF_SM_ACTIVE or DCGM_FI_PROF_SM_UTIL_RATIO or nvidia_gpu_sm_util_percent",
    "DCGM_FI_PROF_DRAM_ACTIVE or DCGM_FI_PROF_DRAM_UTIL_RATIO or nvidia_gpu_dram_bw_util_percent",
    "DCGM_FI_DEV_FB_USED * 1048576 or DCGM_FI_DEV_FB_USED_BYTES or nvidia_gpu_memory_used_bytes",
    "DCGM_FI_DEV_POWER_USAGE or DCGM_FI_DEV_BOARD_POWER_WATTS or nvidia_gpu_power_usage_milliwatts / 1000",
];
/// Labels as jobstats' exporter was recorded to give them at Princeton (della), and as dcgm-exporter 4 does; they count the GPUs of
/// a node differently.
const JOBSTATS: &str = r#""cluster":"della","instance":"n1:9445","job":"gpu nodes","minor_number":"1","name":"NVIDIA A100-PCIE-40GB","uuid":"GPU-ff986cfe-bbb2-163f-b618-719e809ff71c""#;
const DCGM: &str = r#""DCGM_FI_DRIVER_VERSION":"550.54.15","Hostname":"n1","UUID":"GPU-ff986cfe-bbb2-163f-b618-719e809ff71c","device":"nvidia0","gpu":"0","instance":"n1:9400","job":"dcgm","modelName":"NVIDIA A100-PCIE-40GB""#;

/// Job 1 holds a GPU of n1 while it runs (sacct.txt); of power nothing is known. Where a query computes, the metric has no name.
pub(super) fn both_exporters(query: &str, at: u64) -> Option<String> {
    let (name, labels, value) = match QUERIES.iter().position(|known| *known == query)? {
        0 if (1_790_813_045..=1_790_817_491).contains(&at) => ("nvidia_gpu_jobId", JOBSTATS, "1"),
        1 => ("", DCGM, "0.3"),
        2 => ("DCGM_FI_PROF_SM_ACTIVE", DCGM, "0.1"),
        3 => ("DCGM_FI_PROF_DRAM_ACTIVE", DCGM, "0.05"),
        4 => ("", DCGM, "4e9"),
        _ => return None,
    };
    let name = if name.is_empty() { String::new() } else { format!(r#""__name__":"{name}","#) };
    Some(format!(r#"{{"metric":{{{name}{labels}}},"values":[[{at},"{value}"]]}}"#))
}

#[tokio::test]
async fn prometheus_tells_how_jobs_used_their_gpus() {
    let folder = folder();
    let url = double(both_exporters);
    let ran = run(&folder, &format!("{LINE} --prometheus {url} --json")).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let told: Value = serde_json::from_str(&ran.out).expect("one JSON object");
    let causes = told["input"]["rows_dropped"].as_array().expect("a list");
    let count = |part: &str| {
        let row = causes.iter().find(|row| row["cause"].as_str().is_some_and(|cause| cause.contains(part)));
        row.and_then(|row| row["count"].as_u64())
    };
    assert!(count("no job is known to have held then") > Some(0), "{causes:?}");
    assert_eq!(count("has no power"), Some(0), "{causes:?}");
    assert_eq!(count("has no compute units"), None, "{causes:?}");
    assert_eq!(count("did not run there and then"), None, "{causes:?}");
    let coverage = told["confidence"]["telemetry_coverage"]["meaning"].as_str().expect("words");
    assert!(coverage.contains("Of 1 % compute units and memory bandwidth are known too"), "{coverage}");
}

#[tokio::test]
async fn queries_are_printed_and_nothing_else_is_asked() {
    let folder = folder();
    let ran = run(&folder, "replay --print-queries --json").await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let told: Value = serde_json::from_str(&ran.out).expect("one JSON object");
    let queries = told["queries"].as_array().expect("a list");
    let page = include_str!("../../../../docs/evaluate.md");
    assert_eq!(queries.iter().filter_map(|query| query["query"].as_str()).collect::<Vec<_>>(), QUERIES);
    for query in QUERIES {
        assert!(page.contains(query), "docs/evaluate.md lacks {query}");
    }
}

#[tokio::test]
async fn what_answers_otherwise_than_prometheus_is_told_in_one_sentence() {
    let folder = folder();
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it has one");
    let nothing = double(|_, _| None);
    let other = format!("{nothing}/grafana");
    for (url, code, said) in [
        (format!("http://{gone}"), 65, "it cannot be reached"),
        (other, 65, "what answers there is no Prometheus: it says 404"),
        (nothing, 65, "nothing in it tells how one of these jobs used a GPU"),
        ("https://prometheus".to_owned(), 64, "an address that begins with http://"),
        ("prometheus:9090".to_owned(), 64, "an address that begins with http://"),
    ] {
        let ran = run(&folder, &format!("{LINE} --prometheus {url}")).await;
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{url}: {}", ran.err);
        assert!(ran.err.contains(said) && ran.err.lines().count() == 1, "{url}: {}", ran.err);
    }
}
