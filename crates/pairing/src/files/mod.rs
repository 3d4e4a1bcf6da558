//! Planning on files: `pillion plan --solo SOLO.csv --queue QUEUE.csv [--history PAIRS.csv] ..`. Texts in, a view of a
//! cluster in which every job may have a device of its own; and the answer as scripts read it. Opens no file itself.
//!
//! ```text
//! SOLO ─► solo ─┐                  ┌─► ClusterView ─► plan ─► answer ─► Answer
//! PAIRS ► pairs ├─► measured ──────┤
//! QUEUE, RUNNING ► jobs            └─► observations ─► train
//! ALLOW ► pairs ─► Policy.allowed
//! ```
//!
//! On files, unlike on a cluster, unknown memory means that it fits, no job has a time limit, and a workload needs no
//! solo run: what is known only from PAIRS.csv, or only by name, is planned with what the model makes of that.

mod alone;
mod answer;
mod candidates;
mod ground;
mod groups;
mod input;
mod jobs;
mod pairings;
mod pairs;
mod slices;
mod solo;
mod table;
#[cfg(test)]
mod tests;

pub use alone::Alone;
pub use answer::{Answer, AnswerModel, answer};
pub use candidates::{AnswerCandidate, CandidateMember};
pub use groups::read_groups;
pub use input::{FileOptions, FromFiles, Measured, PlanFiles, read, read_measured};
pub use pairings::{AnswerMember, AnswerPairing, row_in_file};
pub use slices::{SliceSpeeds, read_slices};
pub use table::{InvalidFile, NamedText};
