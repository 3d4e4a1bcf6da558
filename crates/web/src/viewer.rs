//! Who looks at the page: found out by whoever serves it, put into each request, and passed on with each question.

use tonic::Extensions;

/// In whose name the service is asked.
#[derive(Debug, Clone, Default)]
pub struct Viewer {
    /// The user's name or uid; absent: nobody knows.
    pub name: Option<String>,
    /// Whether everybody's jobs are shown.
    pub sees_all: bool,
    /// By what the service tells one viewer from another.
    pub extensions: Extensions,
}

impl Viewer {
    /// As whom one looks, in one sentence.
    pub(crate) fn sentence(&self) -> String {
        match (&self.name, self.sees_all) {
            (Some(name), true) => format!("You look as {name} and see everybody’s jobs."),
            (Some(name), false) => format!("You look as {name} and see your own jobs."),
            (None, true) => "Whoever comes this way sees everybody’s jobs.".to_owned(),
            (None, false) => {
                "Nobody knows who you are: jobs, users and workloads are not shown. Open the page on the scheduler’s own \
                 host, or through ssh -L."
                    .to_owned()
            }
        }
    }
}
