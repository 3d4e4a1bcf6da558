//! The web page as the scheduler serves it, over a Postgres with a history: what it says and to whom, that it reads no big
//! table from end to end, and how it looks in a real browser.

mod browser;
mod identity;
mod large;
mod site;
mod sizes;
#[path = "../../../store/tests/support/postgres.rs"]
mod support;
