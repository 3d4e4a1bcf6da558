//! The commands of the control program, and how their answers are printed. Pure.

use std::fmt::Write as _;

/// A command that the double knows.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// `get_server_list`
    ServerList,
    /// `get_server_status PID`
    ServerStatus(u32),
    /// `get_client_list PID`
    ClientList(u32),
    /// `ps [-p PID]`
    Clients(Option<u32>),
    /// `set_default_active_thread_percentage PERCENTAGE`
    SetDefaultPercentage(f64),
    /// `get_default_active_thread_percentage`
    DefaultPercentage,
    /// `set_default_device_pinned_mem_limit DEVICE VALUE`: bytes
    SetDefaultMemoryLimit(String, u64),
    /// `terminate_client SERVER CLIENT`
    TerminateClient(u32, u32),
    /// `sm_partition add DEVICE CHUNKS`
    AddPartition(String, usize),
    /// `sm_partition rm DEVICE PARTITION`
    RemovePartition(String, String),
    /// `lspart`
    Partitions,
    /// `quit`
    Quit,
}

/// Reads a command.
///
/// # Errors
/// A sentence: what is wrong with it.
pub fn read(line: &str) -> Result<Command, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: &str| word.parse::<u32>().map_err(|_| format!("Invalid PID: {word}"));
    match words[..] {
        ["get_server_list"] => Ok(Command::ServerList),
        ["get_server_status", server] => number(server).map(Command::ServerStatus),
        ["get_client_list", server] => number(server).map(Command::ClientList),
        ["ps"] => Ok(Command::Clients(None)),
        ["ps", "-p", server] => number(server).map(|server| Command::Clients(Some(server))),
        ["set_default_active_thread_percentage", value] => {
            let percentage = value.parse().ok().filter(|it| *it > 0.0 && *it <= 100.0);
            percentage.map(Command::SetDefaultPercentage).ok_or(format!("Invalid percentage: {value}"))
        }
        ["get_default_active_thread_percentage"] => Ok(Command::DefaultPercentage),
        ["set_default_device_pinned_mem_limit", device, value] => {
            let bytes = memory(value).ok_or(format!("Invalid limit: {value}"))?;
            Ok(Command::SetDefaultMemoryLimit(device.to_owned(), bytes))
        }
        ["terminate_client", server, client] => {
            Ok(Command::TerminateClient(number(server)?, number(client)?))
        }
        ["sm_partition", "add", device, chunks] => {
            let chunks = chunks.parse().map_err(|_| format!("Invalid number of chunks: {chunks}"))?;
            Ok(Command::AddPartition(device.to_owned(), chunks))
        }
        ["sm_partition", "rm", device, partition] => {
            Ok(Command::RemovePartition(device.to_owned(), partition.to_owned()))
        }
        ["lspart"] => Ok(Command::Partitions),
        ["quit"] => Ok(Command::Quit),
        _ => Err(format!("Unknown command: {line}")),
    }
}

/// An integer and `G` or `M`.
fn memory(value: &str) -> Option<u64> {
    let (count, unit) = match value.strip_suffix('G') {
        Some(count) => (count, 1_073_741_824),
        None => (value.strip_suffix('M')?, 1_048_576),
    };
    count.parse::<u64>().ok()?.checked_mul(unit)
}

/// Process ids, one a line.
pub fn pids(pids: &[u32]) -> String {
    pids.iter().fold(String::new(), |text, pid| text + &pid.to_string() + "\n")
}

/// One client in `ps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its process.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// The pid namespace that it runs in.
    pub namespace: String,
}

/// The table that `ps` prints.
pub fn table(server: u32, device: &str, clients: &[Client]) -> String {
    // A partial UUID, as the document shows it: without its last two parts.
    let device = device.rsplitn(3, '-').nth(2).unwrap_or(device);
    let mut text = String::new();
    let mut row = |[pid, id, server, device, namespace, command]: [&str; 6]| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{pid:<10}{id:<6}{server:<10}{device:<24}{namespace:<13}{command}");
    };
    row(["PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"]);
    for Client { pid, command, namespace } in clients {
        // As the document shows several processes of one context each.
        row([&pid.to_string(), "0", &server.to_string(), device, namespace, command]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_commands_are_read_and_others_refused() {
        assert_eq!(read("terminate_client 123 1024"), Ok(Command::TerminateClient(123, 1024)));
        assert_eq!(
            read("set_default_device_pinned_mem_limit 0 10G"),
            Ok(Command::SetDefaultMemoryLimit("0".into(), 10 << 30))
        );
        assert_eq!(read(" ps "), Ok(Command::Clients(None)));
        for wrong in [
            "",
            "get_servers",
            "get_server_list 1",
            "get_server_status x",
            "set_default_active_thread_percentage 0",
            "set_default_active_thread_percentage 101",
            "set_default_device_pinned_mem_limit 0 10",
            "quit now",
            "sm_partition add GPU-1 two",
            "sm_partition rm GPU-1",
            "lspart all",
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn clients_stand_in_a_table() {
        let client = Client { pid: 9741, command: "./nbody".into(), namespace: "4026531836".into() };
        assert_eq!(
            table(6472, "GPU-cb1213a3-d6a4-be7f-8d23-12f0e1d2c3b4", &[client]),
            "PID       ID    SERVER    DEVICE                  NAMESPACE    COMMAND\n\
             9741      0     6472      GPU-cb1213a3-d6a4-be7f  4026531836   ./nbody\n"
        );
    }
}
