//! The commands of the control program, and how their answers are printed. Pure.
//!
//! They are read as the real daemon of release 550 reads them, carelessly: a number that is none is 0, what follows is passed
//! over. `tests/hardware/vendor` holds the two side by side.

use std::fmt::Write as _;

/// How many devices can have a limit: their numbers are below.
const DEVICE_COUNT: u32 = 32;
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// A command that the double knows.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// `get_server_list`
    ServerList,
    /// `start_server -uid UID`
    StartServer(Option<u32>),
    /// `get_server_status PID`
    ServerStatus(Option<u32>),
    /// `get_client_list PID`
    ClientList(u32),
    /// `ps [-p PID]`
    Clients(Option<u32>),
    /// `set_default_active_thread_percentage PERCENTAGE`; `None`: what stands there is ignored
    SetDefaultPercentage(Option<f64>),
    /// `get_default_active_thread_percentage`
    DefaultPercentage,
    /// `set_default_device_pinned_mem_limit DEVICE VALUE`: bytes, 0 for none
    SetDefaultMemoryLimit(Option<u32>, u64),
    /// `get_default_device_pinned_mem_limit DEVICE`
    DefaultMemoryLimit(Option<u32>),
    /// `set_active_thread_percentage SERVER PERCENTAGE`
    SetPercentage(u32, Option<f64>),
    /// `set_device_pinned_mem_limit SERVER DEVICE VALUE`
    SetMemoryLimit(u32, Option<u32>, u64),
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

/// Reads a command. `has_partitions`: a release that has static partitions.
///
/// # Errors
/// What is printed instead of an answer.
pub fn read(line: &str, has_partitions: bool) -> Result<Command, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let word = |place: usize| words.get(place).copied();
    let pid = |place: usize| word(place).and_then(leading_number).unwrap_or(0);
    let device = |place: usize| word(place).and_then(leading_number).filter(|it| *it < DEVICE_COUNT);
    let percentage = |place: usize| {
        word(place).and_then(leading_decimal).filter(|percentage| *percentage > 0.0 && *percentage <= 100.0)
    };
    let name = word(0).unwrap_or_default();
    Ok(match name {
        "get_server_list" => Command::ServerList,
        "start_server" => Command::StartServer(
            word(1).filter(|word| *word == "-uid").and_then(|_| word(2)).and_then(leading_number),
        ),
        "get_server_status" => Command::ServerStatus(word(1).and_then(leading_number)),
        "get_client_list" => Command::ClientList(pid(1)),
        "ps" => Command::Clients((word(1) == Some("-p")).then(|| pid(2))),
        "set_default_active_thread_percentage" => Command::SetDefaultPercentage(percentage(1)),
        "set_active_thread_percentage" => Command::SetPercentage(pid(1), percentage(2)),
        "set_device_pinned_mem_limit" => {
            Command::SetMemoryLimit(pid(1), device(2), word(3).map_or(0, memory))
        }
        "get_default_active_thread_percentage" => Command::DefaultPercentage,
        "set_default_device_pinned_mem_limit" => {
            Command::SetDefaultMemoryLimit(device(1), word(2).map_or(0, memory))
        }
        "get_default_device_pinned_mem_limit" => Command::DefaultMemoryLimit(device(1)),
        "terminate_client" => Command::TerminateClient(pid(1), pid(2)),
        "quit" => Command::Quit,
        "lspart" if has_partitions => Command::Partitions,
        "sm_partition" if has_partitions => return partition(&words),
        _ => return Err(format!("Unknown command \"{name}\"\n")),
    })
}

/// Of releases that could not be looked at: read strictly.
fn partition(words: &[&str]) -> Result<Command, String> {
    match words {
        [_, "add", device, chunks] => {
            let chunks = chunks.parse().map_err(|_| format!("Invalid number of chunks: {chunks}\n"))?;
            Ok(Command::AddPartition((*device).to_owned(), chunks))
        }
        [_, "rm", device, partition] => {
            Ok(Command::RemovePartition((*device).to_owned(), (*partition).to_owned()))
        }
        _ => Err(format!("Invalid: {}\n", words.join(" "))),
    }
}

fn leading_number(word: &str) -> Option<u32> {
    let end = word.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(word.len());
    word[..end].parse().ok()
}

fn leading_decimal(word: &str) -> Option<f64> {
    let is_part = |letter: char| letter.is_ascii_digit() || letter == '.';
    let end = word.find(|letter| !is_part(letter)).unwrap_or(word.len());
    word[..end].parse().ok()
}

/// A whole number and `G`; whatever else follows is mebibytes.
fn memory(word: &str) -> u64 {
    let end = word.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(word.len());
    let unit = if word[end..].starts_with(['G', 'g']) { GIB } else { MIB };
    word[..end].parse::<u64>().unwrap_or(0).saturating_mul(unit)
}

/// A limit, rounded down to what it is printed in.
pub fn printed_limit(bytes: u64) -> String {
    if bytes >= GIB { format!("{}G\n", bytes / GIB) } else { format!("{}M\n", bytes / MIB) }
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
        let _ = writeln!(text, "{pid:<10}{id:<10}{server:<15}{device:<24}{namespace:<15}{command:<15}");
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
    fn commands_are_read_as_the_real_one_reads_them() {
        let read = |line: &str| read(line, true);
        assert_eq!(read("terminate_client 123 1024"), Ok(Command::TerminateClient(123, 1024)));
        assert_eq!(read("terminate_client x"), Ok(Command::TerminateClient(0, 0)));
        assert_eq!(read(" ps "), Ok(Command::Clients(None)));
        assert_eq!(read("get_server_list 1"), Ok(Command::ServerList));
        assert_eq!(read("get_server_status x"), Ok(Command::ServerStatus(None)));
        assert_eq!(read("quit now"), Ok(Command::Quit));
        assert_eq!(read("set_active_thread_percentage 7 40"), Ok(Command::SetPercentage(7, Some(40.0))));
        assert_eq!(
            read("set_device_pinned_mem_limit 7 0 1G"),
            Ok(Command::SetMemoryLimit(7, Some(0), 1 << 30))
        );
        assert_eq!(read("set_device_pinned_mem_limit x"), Ok(Command::SetMemoryLimit(0, None, 0)));
        assert_eq!(read("start_server 7"), Ok(Command::StartServer(None)));
        for ignored in ["0", "101", "abc", ""] {
            let line = format!("set_default_active_thread_percentage {ignored}");
            assert_eq!(read(&line), Ok(Command::SetDefaultPercentage(None)), "{line}");
        }
        for wrong in ["", "get_servers", "sm_partition add GPU-1 two", "sm_partition rm GPU-1"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(super::read("lspart", false), Err("Unknown command \"lspart\"\n".to_owned()));
    }

    #[test]
    fn limits_are_read_and_printed_with_what_is_lost_on_the_way() {
        let limit = |value: &str| match read(&format!("set_default_device_pinned_mem_limit 0 {value}"), true)
        {
            Ok(Command::SetDefaultMemoryLimit(Some(0), bytes)) => bytes,
            other => panic!("{other:?}"),
        };
        assert_eq!([limit("10G"), limit("1g"), limit("1536M")], [10 << 30, 1 << 30, 1536 << 20]);
        assert_eq!(
            [limit("2.5G"), limit("7X"), limit("10"), limit("abc"), limit("")],
            [2 << 20, 7 << 20, 10 << 20, 0, 0]
        );
        assert_eq!(printed_limit(1536 << 20), "1G\n");
        assert_eq!(printed_limit(1023 << 20), "1023M\n");
        assert_eq!(
            read("get_default_device_pinned_mem_limit 32", true),
            Ok(Command::DefaultMemoryLimit(None))
        );
    }

    #[test]
    fn clients_stand_in_a_table() {
        let client = Client { pid: 9741, command: "./nbody".into(), namespace: "4026531836".into() };
        assert_eq!(
            table(6472, "GPU-cb1213a3-d6a4-be7f-8d23-12f0e1d2c3b4", &[client]),
            "PID       ID        SERVER         DEVICE                  NAMESPACE      COMMAND        \n\
             9741      0         6472           GPU-cb1213a3-d6a4-be7f  4026531836     ./nbody        \n"
        );
    }
}
