//! What `nvidia-cuda-mps-control` prints, read. Pure.
//!
//! Source: NVIDIA Multi-Process Service (r550), appendix Tools and Interface Reference; `ps` and `terminate_client` as
//! printed under Client Early Termination; and what the daemon of release 550 prints without a driver
//! (`tests/hardware/vendor`). Whatever is printed otherwise is an error, but for what users choose: the program has been changed, and nothing is guessed.
//! Refusals are among it: the program ends with 0 whatever its daemon was told, and only the words tell.

use crate::DeviceError;

/// A server's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerStatus {
    /// New clients wait.
    Initializing,
    /// New clients are let in.
    Active,
    /// A client's fatal fault blocks it: new clients are refused.
    Fault,
}

/// A line of `ps`, as far as it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientRow {
    pub(super) pid: u32,
    pub(super) server_pid: u32,
}

/// Not what the document shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nvidia-cuda-mps-control answered '{line}' to {command}")]
pub(super) struct Unknown {
    command: &'static str,
    line: String,
}

pub(super) fn unknown(command: &'static str, text: &str) -> Unknown {
    Unknown { command, line: text.trim().chars().take(200).collect() }
}

/// The error that whoever asked the program is told.
pub(super) fn garbled(unknown: &Unknown) -> DeviceError {
    DeviceError::Garbled { reason: unknown.to_string() }
}

pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// `get_server_list`: one process id a line, or nothing.
///
/// # Errors
/// [`Unknown`]
pub(super) fn servers(text: &str) -> Result<Vec<u32>, Unknown> {
    pids("get_server_list", text)
}

/// `get_client_list`: one process id a line, or nothing. `None`: the server has ended since it was listed.
///
/// # Errors
/// [`Unknown`]
pub(super) fn server_clients(server_pid: u32, text: &str) -> Result<Option<Vec<u32>>, Unknown> {
    if is_gone(server_pid, text) { Ok(None) } else { pids("get_client_list", text).map(Some) }
}

fn pids(command: &'static str, text: &str) -> Result<Vec<u32>, Unknown> {
    lines(text).map(|line| line.parse().map_err(|_| unknown(command, line))).collect()
}

/// `get_server_status`: one word. `None`: the server has ended since it was listed.
///
/// # Errors
/// [`Unknown`]
pub(super) fn server_status(server_pid: u32, text: &str) -> Result<Option<ServerStatus>, Unknown> {
    match text.trim() {
        "INITIALIZING" => Ok(Some(ServerStatus::Initializing)),
        "ACTIVE" => Ok(Some(ServerStatus::Active)),
        "FAULT" => Ok(Some(ServerStatus::Fault)),
        _ if is_gone(server_pid, text) => Ok(None),
        other => Err(unknown("get_server_status", other)),
    }
}

fn is_gone(server_pid: u32, text: &str) -> bool {
    text.trim() == format!("Server {server_pid} not found")
}

/// `ps`: a heading, then `PID ID SERVER DEVICE NAMESPACE COMMAND` a client and device. Other words where no server is up. The command
/// is its user's to choose: it may hold blanks and ends of lines, or nothing. What is no row is left out, so that nobody makes all of
/// them unreadable; and one that looks like a row may be a name.
///
/// # Errors
/// [`Unknown`], where there is no heading.
pub(super) fn clients(text: &str) -> Result<Vec<ClientRow>, Unknown> {
    if text.trim() == "Server not found" {
        return Ok(Vec::new());
    }
    let mut lines = lines(text);
    match lines.next() {
        Some(heading) if !heading.split_whitespace().eq(HEADING) => Err(unknown("ps", heading)),
        _ => Ok(lines.filter_map(client_row).collect()),
    }
}

fn client_row(line: &str) -> Option<ClientRow> {
    let mut fields = line.split_whitespace();
    let pid = fields.next()?.parse().ok()?;
    let _id: u64 = fields.next()?.parse().ok()?;
    let server_pid = fields.next()?.parse().ok()?;
    let _device = fields.next()?;
    let _namespace: u64 = fields.next()?.parse().ok()?;
    Some(ClientRow { pid, server_pid })
}

const HEADING: [&str; 6] = ["PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"];

/// `terminate_client`: the CUDA result, 0 for success.
///
/// # Errors
/// [`Unknown`] holds any other.
pub(super) fn terminated(text: &str) -> Result<(), Unknown> {
    if text.trim() == "0" { Ok(()) } else { Err(unknown("terminate_client", text)) }
}

/// `set_default_active_thread_percentage`: whether it was taken. It prints the percentage that holds afterwards, to one place:
/// that of before, if it ignored the new one.
pub(super) fn is_percentage(percent: f64, text: &str) -> bool {
    text.trim().parse::<f64>().is_ok_and(|printed| (printed - percent).abs() < 0.1)
}

/// Whether what a server's setting was answered with says that it was not taken. A server that is gone takes none and needs
/// none; what is printed of one that was taken is not documented.
pub(super) fn is_refusal(text: &str) -> bool {
    ["Unknown command", "Insufficient privileges"].iter().any(|words| text.trim().starts_with(words))
}

/// `get_default_device_pinned_mem_limit`: whether so many mebibytes hold. It prints whole gibibytes, rounded down, or mebibytes
/// below one; nothing where there is no limit.
pub(super) fn is_limit(mebibytes: u64, text: &str) -> bool {
    let text = text.trim();
    let unit = text.chars().last().and_then(|letter| match letter {
        'G' => Some(1024),
        'M' => Some(1),
        _ => None,
    });
    let printed = text.get(..text.len().saturating_sub(1)).and_then(|count| count.parse::<u64>().ok());
    unit.zip(printed).is_some_and(|(unit, printed)| printed > 0 && mebibytes / unit == printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_process_ids() {
        assert_eq!(servers(""), Ok(vec![]));
        assert_eq!(server_clients(7, "6472\n\n 9741\n"), Ok(Some(vec![6472, 9741])));
        assert_eq!(server_clients(7, "Server 7 not found\n"), Ok(None));
        assert!(server_clients(7, "Server 8 not found\n").is_err());
        let error = servers("Unknown command \"get_server_list\"\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "nvidia-cuda-mps-control answered 'Unknown command \"get_server_list\"' to get_server_list"
        );
    }

    #[test]
    fn a_status_is_one_of_three_words() {
        assert_eq!(server_status(7, "ACTIVE\n"), Ok(Some(ServerStatus::Active)));
        assert_eq!(server_status(7, "INITIALIZING"), Ok(Some(ServerStatus::Initializing)));
        assert_eq!(server_status(7, "FAULT\n"), Ok(Some(ServerStatus::Fault)));
        assert_eq!(server_status(7, "Server 7 not found\n"), Ok(None));
        for wrong in ["", "active", "ACTIVE ACTIVE", "Server not found", "A server PID is required"] {
            assert!(server_status(7, wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn ps_as_the_document_shows_it() {
        let text = "PID ID SERVER DEVICE NAMESPACE COMMAND\n\
                    9741 0 6472 GPU-cb1213a3-d6a4-be7f 4026531836 ./nbody -n 5\n\
                    \n9743 0 6472 GPU-cb1213a3-d6a4-be7f 4026531836 ./matrixMul\n";
        let expected = [9741, 9743].map(|pid| ClientRow { pid, server_pid: 6472 });
        assert_eq!(clients(text), Ok(expected.into()));
        assert_eq!(clients("PID   ID    SERVER  DEVICE  NAMESPACE  COMMAND\n"), Ok(vec![]));
        assert_eq!(clients("Server not found\n"), Ok(vec![]));
        for wrong in ["9741 0 6472", "9741 0 x GPU-1 4026531836 ./nbody", "no clients"] {
            assert!(clients(wrong).is_err(), "{wrong:?}");
        }
    }

    /// Whoever chose it would keep the clients of all others from being ended.
    #[test]
    fn a_name_hides_nobody_else() {
        let heading = HEADING.join(" ");
        let row = |pid: u32, name: &str| format!("{pid} 0 6472 GPU-1 4026531836 {name}\n");
        for name in ["", " ", "a b  c", "a\nb", "\n", "a\n7 8", "a\n9741 0 6472 GPU-1", &*heading, "a\r\tb"] {
            let text = format!("{heading}\n{}{}", row(9741, name), row(9743, "./nbody"));
            let expected = [9741, 9743].map(|pid| ClientRow { pid, server_pid: 6472 });
            assert_eq!(clients(&text), Ok(expected.into()), "{name:?}");
        }
        for cut in
            ["9741", "9741 0 6472", "9741 0 6472 GPU-1", "9741 0 6472 GPU-1 x y", "-1 0 6472 GPU-1 40 x"]
        {
            let text = format!("{heading}\n{cut}\n{}", row(9743, "./nbody"));
            assert_eq!(clients(&text), Ok(vec![ClientRow { pid: 9743, server_pid: 6472 }]), "{cut}");
        }
    }

    #[test]
    fn a_termination_returns_a_cuda_result() {
        assert_eq!(terminated("0\n"), Ok(()));
        assert!(terminated("201\n").unwrap_err().to_string().contains("'201'"));
        for refused in ["", "Server 7 not found\nServer 7 not found!\n1\n", "Server 7 not found!\n1\n"] {
            assert!(terminated(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn a_server_takes_a_setting_unless_it_is_refused_in_words() {
        for taken in ["", "40.0\n", "2G\n", "Server 7 not found\n"] {
            assert!(!is_refusal(taken), "{taken:?}");
        }
        assert!(is_refusal("Unknown command \"set_device_pinned_mem_limit\"\n"));
        assert!(is_refusal("Insufficient privileges for UID 65534. Control deamon settings\n"));
    }

    #[test]
    fn a_setting_is_taken_where_it_is_printed() {
        assert!(is_percentage(62.53, "62.5\n") && is_percentage(0.01, "0.0\n"));
        let refusal = "Insufficient privileges for UID 65534. Control deamon settings can only be modified by the user \
                       started it or by the root user.\n";
        for ignored in ["100.0\n", "", refusal, "Unknown command \"x\"\n"] {
            assert!(!is_percentage(40.0, ignored) && !is_limit(1536, ignored), "{ignored:?}");
        }
        for (mebibytes, printed) in [(2048, "2G\n"), (1536, "1G\n"), (1536, "1536M"), (1023, "1023M\n")] {
            assert!(is_limit(mebibytes, printed), "{mebibytes}: {printed:?}");
        }
        for (mebibytes, printed) in [(2048, "1G"), (512, "0G"), (0, ""), (0, "0M"), (3, "G"), (3, "3")] {
            assert!(!is_limit(mebibytes, printed), "{mebibytes}: {printed:?}");
        }
    }
}
