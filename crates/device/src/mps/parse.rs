//! What `nvidia-cuda-mps-control` prints, read. Pure.
//!
//! Source: NVIDIA Multi-Process Service (r550), appendix Tools and Interface Reference; `ps` and `terminate_client` as
//! printed under Client Early Termination. Whatever is printed otherwise is an error: the program has been changed, and
//! nothing is guessed.

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

pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// `get_server_list` and `get_client_list`: one process id a line, or nothing.
///
/// # Errors
/// [`Unknown`]
pub(super) fn pids(command: &'static str, text: &str) -> Result<Vec<u32>, Unknown> {
    lines(text).map(|line| line.parse().map_err(|_| unknown(command, line))).collect()
}

/// `get_server_status`: one word.
///
/// # Errors
/// [`Unknown`]
pub(super) fn server_status(text: &str) -> Result<ServerStatus, Unknown> {
    match text.trim() {
        "INITIALIZING" => Ok(ServerStatus::Initializing),
        "ACTIVE" => Ok(ServerStatus::Active),
        "FAULT" => Ok(ServerStatus::Fault),
        other => Err(unknown("get_server_status", other)),
    }
}

/// `ps`: a heading, then `PID ID SERVER DEVICE NAMESPACE COMMAND` a client and device; the command may hold blanks.
///
/// # Errors
/// [`Unknown`]
pub(super) fn clients(text: &str) -> Result<Vec<ClientRow>, Unknown> {
    let is_heading = |line: &&str| line.split_whitespace().eq(HEADING);
    let row = |line: &str| {
        let mut fields = line.split_whitespace();
        let pid = fields.next().and_then(|field| field.parse().ok());
        let server_pid = fields.nth(1).and_then(|field| field.parse().ok());
        let is_whole = fields.count() >= HEADING.len() - 3;
        pid.zip(server_pid)
            .filter(|_| is_whole)
            .map(|(pid, server_pid)| ClientRow { pid, server_pid })
            .ok_or_else(|| unknown("ps", line))
    };
    lines(text).filter(|line| !is_heading(line)).map(row).collect()
}

const HEADING: [&str; 6] = ["PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"];

/// `terminate_client`: the CUDA result, 0 for success.
///
/// # Errors
/// [`Unknown`] holds any other.
pub(super) fn terminated(text: &str) -> Result<(), Unknown> {
    if text.trim() == "0" { Ok(()) } else { Err(unknown("terminate_client", text)) }
}

/// `get_default_active_thread_percentage`: a number.
///
/// # Errors
/// [`Unknown`]
pub(super) fn percentage(text: &str) -> Result<f64, Unknown> {
    text.trim().parse().map_err(|_| unknown("get_default_active_thread_percentage", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_process_ids() {
        assert_eq!(pids("get_server_list", ""), Ok(vec![]));
        assert_eq!(pids("get_client_list", "6472\n\n 9741\n"), Ok(vec![6472, 9741]));
        let error = pids("get_server_list", "Unknown command\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "nvidia-cuda-mps-control answered 'Unknown command' to get_server_list"
        );
    }

    #[test]
    fn a_status_is_one_of_three_words() {
        assert_eq!(server_status("ACTIVE\n"), Ok(ServerStatus::Active));
        assert_eq!(server_status("INITIALIZING"), Ok(ServerStatus::Initializing));
        assert_eq!(server_status("FAULT\n"), Ok(ServerStatus::Fault));
        for wrong in ["", "active", "ACTIVE ACTIVE", "Server not found"] {
            assert!(server_status(wrong).is_err(), "{wrong:?}");
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
        for wrong in ["9741 0 6472", "9741 0 x GPU-1 4026531836 ./nbody", "no clients"] {
            assert!(clients(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_termination_returns_a_cuda_result() {
        assert_eq!(terminated("0\n"), Ok(()));
        assert!(terminated("201\n").unwrap_err().to_string().contains("'201'"));
        assert!(terminated("").is_err());
    }

    #[test]
    fn a_percentage_is_a_number() {
        assert_eq!(percentage("62.5\n"), Ok(62.5));
        assert!(percentage("all").is_err());
    }
}
