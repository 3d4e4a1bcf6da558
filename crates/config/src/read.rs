//! A file's text, read as each program reads it.

use crate::check::{Place, check};
use crate::mistake::{ConfigError, Mistake};
use crate::rules::{is_name, is_socket_path};
use crate::schema::schema_of;
use crate::{Agent, AgentMode, Scheduler};
use pillion_core::heartbeat::Mode;
use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Which program reads a part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `pillion-scheduler`: all but `[agent]`.
    Scheduler,
    /// `pillion-agent`: what stands under `[agent]`.
    Agent,
}

impl Part {
    /// The name of the program that reads it.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Scheduler => "pillion-scheduler",
            Self::Agent => "pillion-agent",
        }
    }
}

/// Reads the agent's part. `host_name` stands in for a node name that is not given.
///
/// # Errors
/// [`ConfigError`].
pub fn read_agent(path: &Path, host_name: &str) -> Result<Agent, ConfigError> {
    parse_agent(&read(path)?, host_name).map_err(|mistakes| ConfigError::wrong(path, mistakes))
}

pub(crate) fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })
}

/// The scheduler's part of a text.
///
/// # Errors
/// What is wrong in it, at least one mistake.
pub fn parse_scheduler(text: &str) -> Result<Scheduler, Vec<Mistake>> {
    let mut file = table(text)?;
    file.get_mut().remove("agent");
    let schema = schema_of::<Scheduler>();
    let place = Place { text, root: &schema, root_section: "" };
    let mistakes = check(place, "", &schema, file.get_ref());
    let partitions = "pool.partitions";
    let is_judged = mistakes.iter().any(|mistake| mistake.key == partitions);
    let scheduler: Scheduler = taken(text, file.clone(), mistakes)?;
    if scheduler.pool.partitions.is_empty() && scheduler.observe.partitions.is_empty() && !is_judged {
        let line = line_of(place, file.get_ref(), partitions);
        let sentence =
            "pool.partitions is missing; write the pool's partitions into [pool], partitions = [\"shared\"]";
        return Err(vec![Mistake { line, key: partitions.to_owned(), sentence: sentence.to_owned() }]);
    }
    let wrong = in_scheduler(&scheduler);
    let partitions = scheduler.pool.partitions.iter().chain(&scheduler.observe.partitions);
    let known: Vec<&str> = partitions.map(String::as_str).collect();
    let of_overrides =
        crate::overrides::wrong(&scheduler.policy.overrides, &known).into_iter().map(|(number, sentence)| {
            let key = format!("policy.override[{number}]");
            Mistake { line: line_of(place, file.get_ref(), &key), sentence: format!("{key} {sentence}"), key }
        });
    let mut wrong = placed(place, file.get_ref(), wrong);
    wrong.extend(of_overrides);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(scheduler)
}

/// The agent's part of a text: its table `[agent]`, or all of it where it is a file of earlier releases, of the agent alone.
///
/// # Errors
/// What is wrong in it, at least one mistake.
pub fn parse_agent(text: &str, host_name: &str) -> Result<Agent, Vec<Mistake>> {
    let file = table(text)?;
    let own = file.get_ref().get("agent").map(|value| (value.span(), value.get_ref()));
    let (section, part) = match own {
        Some((_, DeValue::Table(own))) => ("agent", own.clone()),
        Some((span, _)) => {
            let place = Place { text, root: &serde_json::Value::Null, root_section: "" };
            let sentence = "agent is a section; write [agent] and its settings below it".to_owned();
            return Err(vec![Mistake { line: place.line(span.start), key: "agent".to_owned(), sentence }]);
        }
        None if is_of_agent_alone(file.get_ref()) => ("", file.get_ref().clone()),
        None => ("agent", DeTable::new()),
    };
    let schema = schema_of::<Agent>();
    let place = Place { text, root: &schema, root_section: section };
    let mistakes = check(place, section, &schema, &part);
    let agent: Agent = taken(text, Spanned::new(file.span(), part.clone()), mistakes)?;
    let agent = agent.named(host_name);
    let wrong = together(&agent);
    if wrong.is_empty() {
        return Ok(agent);
    }
    Err(placed(place, file.get_ref(), wrong))
}

/// Mistakes (key within the section, and sentence) with their lines.
fn placed(place: Place<'_>, file: &DeTable<'_>, wrong: Vec<(&'static str, String)>) -> Vec<Mistake> {
    let mistakes = wrong.into_iter().map(|(key, sentence)| {
        let key = crate::check::dotted(place.root_section, key);
        Mistake { line: line_of(place, file, &key), sentence: format!("{key} = {sentence}"), key }
    });
    mistakes.collect()
}

/// What settings of the scheduler must hold together: key and sentence.
fn in_scheduler(scheduler: &Scheduler) -> Vec<(&'static str, String)> {
    let mut wrong = beside_a_pool(scheduler);
    if let Some(address) = scheduler.web.listen_address.filter(|it| !it.ip().is_loopback())
        && !scheduler.web.allow_remote
    {
        let sentence = format!(
            "\"{address}\" can be reached from other machines; write an address such as \"127.0.0.1:6821\", or \
             web.allow_remote = true"
        );
        wrong.push(("web.listen_address", sentence));
    }
    wrong.extend(scheduler.auth.wrong_with([scheduler.listen.tcp.ip().to_string().as_str()]));
    let weakness = scheduler.database.url.as_deref().and_then(crate::database::weakness);
    wrong.extend(weakness.map(|sentence| ("database.url", sentence)));
    wrong
}

/// What is observed is no pool, and without a pool nothing is managed.
fn beside_a_pool(scheduler: &Scheduler) -> Vec<(&'static str, String)> {
    let (pool, observed) = (&scheduler.pool.partitions, &scheduler.observe.partitions);
    let mut wrong = Vec::new();
    if let Some(both) = observed.iter().find(|name| pool.contains(name)) {
        let sentence =
            format!("a list with {both:?}, which is a pool (pool.partitions); name ordinary partitions only");
        wrong.push(("observe.partitions", sentence));
    }
    if pool.is_empty() && scheduler.mode == Mode::Active {
        let sentence =
            "\"active\" needs a pool; write mode = \"off\", or name the pool's partitions (pool.partitions)";
        wrong.push(("mode", sentence.to_owned()));
    }
    if let Some(other) = scheduler.pool.colocate_partitions.keys().find(|name| !pool.contains(name)) {
        let sentence =
            format!("a table with {other:?}, which is no partition of the pool (pool.partitions); remove it");
        wrong.push(("pool.colocate_partitions", sentence));
    }
    if observed.is_empty() && scheduler.mode == Mode::Shadow {
        let sentence = "\"shadow\" decides on observed partitions; name them (observe.partitions), or write mode = \"off\"";
        wrong.push(("mode", sentence.to_owned()));
    }
    if observed.is_empty() && scheduler.observe.shadow {
        let sentence = "true decides on observed partitions; name them (observe.partitions), or remove it";
        wrong.push(("observe.shadow", sentence.to_owned()));
    }
    wrong
}

/// What settings must hold together, or with the node's name.
fn together(agent: &Agent) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    let node = agent.node_name.as_deref().unwrap_or_default();
    if !is_name(node) {
        let allowed = "letters, digits, dots, underscores and dashes";
        wrong.push(("node_name", format!("{node:?}, from the host's name, is not allowed; write {allowed}")));
    }
    let intel = &agent.intel;
    if intel.metric_period_seconds < intel.metric_burst_seconds {
        let (period, burst) = (intel.metric_period_seconds, intel.metric_burst_seconds);
        wrong.push((
            "intel.metric_period_seconds",
            format!("{period} is less than intel.metric_burst_seconds; write {burst} or more"),
        ));
    }
    wrong.extend(beside_observing(agent));
    let hosts = agent.scheduler_addresses();
    wrong.extend(agent.auth.wrong_with(hosts.iter().map(|(host, _)| host.as_str())));
    for (key, path) in
        [("handoff_socket", &agent.handoff_socket), ("simulated.socket", &agent.simulated.socket)]
    {
        if !path.to_str().is_some_and(is_socket_path) {
            let path = path.display();
            wrong
                .push((key, format!("'{path}' is not allowed; write an absolute path of at most 107 bytes")));
        }
    }
    wrong
}

/// What an agent that only observes would have to touch jobs or devices for, or would not heed.
fn beside_observing(agent: &Agent) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    if agent.mode != AgentMode::Observe {
        return wrong;
    }
    if agent.mig.enabled {
        wrong.push((
            "mig.enabled",
            "true cuts devices, and mode = \"observe\" changes none; remove it".to_owned(),
        ));
    }
    if agent.intel.metric_burst_seconds > 0.0 {
        let burst = agent.intel.metric_burst_seconds;
        let sentence = format!(
            "{burst} would keep users' profilers out for so long, and mode = \"observe\" changes nothing for jobs; write 0"
        );
        wrong.push(("intel.metric_burst_seconds", sentence));
    }
    if agent.devices.gres_types.is_some() {
        let sentence = "a list of names is for the pool's types; with mode = \"observe\" devices are g0, g1, .. by index; \
                        remove it";
        wrong.push(("devices.gres_types", sentence.to_owned()));
    }
    wrong
}

/// Which programs find something of theirs in a text.
///
/// # Errors
/// Where it is no TOML.
pub fn parts(text: &str) -> Result<Vec<Part>, Vec<Mistake>> {
    let file = table(text)?;
    let file = file.get_ref();
    Ok(if file.get("agent").is_none() {
        vec![if is_of_agent_alone(file) && !file.is_empty() { Part::Agent } else { Part::Scheduler }]
    } else if file.len() == 1 {
        vec![Part::Agent]
    } else {
        vec![Part::Scheduler, Part::Agent]
    })
}

/// Every mistake that a program finds in a text.
pub fn mistakes(part: Part, text: &str, host_name: &str) -> Vec<Mistake> {
    let mut found = match part {
        Part::Scheduler => parse_scheduler(text).err(),
        Part::Agent => parse_agent(text, host_name).err(),
    }
    .unwrap_or_default();
    found.sort_by_key(|mistake| mistake.line);
    found
}

/// Whether this is a file of earlier releases, with the agent's settings at the top: nothing that only the scheduler knows
/// stands there.
pub(crate) fn is_of_agent_alone(file: &DeTable<'_>) -> bool {
    let (ours, others) = (schema_of::<Agent>(), schema_of::<Scheduler>());
    !file.keys().any(|name| {
        let [is_ours, is_others] =
            [&ours, &others].map(|schema| schema["properties"].get(name.get_ref().as_ref()).is_some());
        // Both parts have a mode; the agent's files of earlier releases had none.
        is_others && !is_ours || name.get_ref() == "mode"
    })
}

/// A text as tables.
pub(crate) fn table(text: &str) -> Result<Spanned<DeTable<'_>>, Vec<Mistake>> {
    DeTable::parse(text).map_err(|error| vec![of_toml(text, &error)])
}

fn of_toml(text: &str, error: &toml::de::Error) -> Mistake {
    let place = Place { text, root: &serde_json::Value::Null, root_section: "" };
    let line = error.span().map_or(1, |span| place.line(span.start));
    let message = error.message().lines().collect::<Vec<_>>().join("; ");
    Mistake { line, key: String::new(), sentence: format!("this is no TOML: {message}") }
}

/// The values of a table in which nothing is wrong.
fn taken<'a, T: Deserialize<'a>>(
    text: &str,
    table: Spanned<DeTable<'a>>,
    mistakes: Vec<Mistake>,
) -> Result<T, Vec<Mistake>> {
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    // Past the check this fails for what the schema has no word for only, and says where.
    let deserializer = toml::de::Deserializer::from(table);
    T::deserialize(deserializer.into_deserializer()).map_err(|error| vec![of_toml(text, &error)])
}

/// The line of a key, or of the section where it is missing.
fn line_of(place: Place<'_>, file: &DeTable<'_>, key: &str) -> usize {
    lines_of(place, file, key).last().copied().unwrap_or(1)
}

/// The lines of a key and of the sections that it stands in, the outermost first, as far as they are there.
fn lines_of(place: Place<'_>, file: &DeTable<'_>, key: &str) -> Vec<usize> {
    let (mut table, mut lines) = (file, Vec::new());
    for part in key.split('.') {
        // `name[2]`: the second table of a list.
        let (part, number) = match part.strip_suffix(']').and_then(|part| part.split_once('[')) {
            Some((part, number)) => (part, number.parse::<usize>().ok()),
            None => (part, None),
        };
        let Some((name, value)) = table.get_key_value(part) else { break };
        let (start, value) = match (value.get_ref(), number) {
            (DeValue::Array(items), Some(number)) => {
                let Some(item) = number.checked_sub(1).and_then(|at| items.get(at)) else { break };
                (item.span().start, item.get_ref())
            }
            (value, _) => (name.span().start, value),
        };
        lines.push(place.line(start));
        let DeValue::Table(inner) = value else { break };
        table = inner;
    }
    lines
}

/// The line in which a text sets a key, if it does.
pub(crate) fn line_written(part: Part, text: &str, key: &str) -> Option<usize> {
    let file = table(text).ok()?;
    let place = Place { text, root: &serde_json::Value::Null, root_section: "" };
    let is_old = part == Part::Agent && file.get_ref().get("agent").is_none();
    let key = if is_old { key.strip_prefix("agent.").unwrap_or(key) } else { key };
    let lines = lines_of(place, file.get_ref(), key);
    (lines.len() == key.split('.').count()).then(|| lines.last().copied()).flatten()
}
