//! One page from one endpoint: the whole of it within a deadline and a length, or a sentence that says what was wrong.

use std::time::Duration;

/// Asks one endpoint. Every question has a connection of its own: an exporter that was restarted is none the worse.
#[derive(Debug)]
pub(super) struct Client {
    agent: ureq::Agent,
    deadline: Duration,
    body_bytes_max: u64,
}

impl Client {
    pub(super) fn new(deadline: Duration, body_bytes_max: u64) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(deadline))
            .http_status_as_error(false)
            .max_redirects(0)
            // The endpoint is on this node, whatever the environment says of proxies.
            .proxy(None)
            .max_idle_connections(0)
            .accept("text/plain; version=0.0.4")
            .build();
        Self { agent: config.into(), deadline, body_bytes_max }
    }

    /// The text of the page.
    ///
    /// # Errors
    /// What was wrong, as the end of a sentence about the endpoint.
    pub(super) fn get(&self, url: &str) -> Result<String, String> {
        let mut answer = self.agent.get(url).call().map_err(|error| self.in_words(&error))?;
        if answer.status() != ureq::http::StatusCode::OK {
            return Err(format!("it answered with status {}", answer.status()));
        }
        let body = answer.body_mut().with_config().limit(self.body_bytes_max);
        body.read_to_string().map_err(|error| self.in_words(&error))
    }

    fn in_words(&self, error: &ureq::Error) -> String {
        match error {
            ureq::Error::Timeout(_) => format!("it did not answer whole within {:?}", self.deadline),
            ureq::Error::BodyExceedsLimit(_) => {
                format!("its answer is longer than {} bytes", self.body_bytes_max)
            }
            other => other.to_string(),
        }
    }
}
