//! The web for agents: pages, searches, and a proxy for what runs in a sandbox. The only room that opens connections
//! for agents.
//!
//! A connection must never go to an address that was not judged after its name was resolved: an agent follows links that
//! others wrote, and some of them lead into the operator's network.

pub mod address;
mod body;
mod client;
pub mod dial;
mod fetch;
pub mod filename;
mod google;
pub mod html;
pub mod proxy;
mod requests;
mod search;

use std::sync::Arc;

use ghost_config::plan::WebPlan;
use ghost_domain::{Clock, Refusal};

pub use client::{machine_tls, read_certificates};
pub use fetch::{Content, Extract, FetchRequest, Fetched, Fetcher};
pub use google::{Answer, Citation, Google};
pub use search::{Found, Freshness, Query, Search};

use address::Rules;
use client::Client;
use dial::{Dialer, Resolve, SystemResolver};

/// The web as one world has it.
pub struct Web {
    dialer: Dialer,
    /// Fetches pages.
    pub fetcher: Fetcher,
    /// The search service, or why there is none.
    pub search: Result<Search, String>,
    /// Gemini with its search, or why there is none.
    pub google: Result<Google, String>,
}

/// What [`Web::open_with`] needs from the outside.
pub struct Outside<'e> {
    /// Reads an environment variable.
    pub env: &'e dyn Fn(&str) -> Option<String>,
    /// The clock of all deadlines.
    pub clock: Arc<dyn Clock>,
    /// Resolves names.
    pub resolver: Arc<dyn Resolve>,
    /// The certificates that are trusted.
    pub tls: Arc<rustls::ClientConfig>,
}

impl Web {
    /// The web of a world, with the names and the certificates of this machine. `plan` is the section of the world file,
    /// if it has one. `env` reads environment variables.
    ///
    /// # Errors
    /// Why there is none, as the rest of a sentence.
    pub fn open(
        plan: Option<&WebPlan>,
        env: &dyn Fn(&str) -> Option<String>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let plan = plan.ok_or("the world file has no section `web`")?;
        Self::open_with(plan, Outside { env, clock, resolver: Arc::new(SystemResolver), tls: machine_tls()? })
    }

    /// As [`open`](Self::open), with other names and certificates, for tests.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open_with(plan: &WebPlan, outside: Outside<'_>) -> Result<Self, String> {
        let Outside { env, clock, resolver, tls } = outside;
        let dialer = Dialer::new(Rules::new(plan), Arc::clone(&resolver), Arc::clone(&clock));
        let client = Client::new(dialer.clone(), Arc::clone(&tls));
        let fetcher = Fetcher::new(plan, client, Arc::clone(&clock))?;
        let of_operator = Client::new(Dialer::new(Rules::of_operator(), resolver, Arc::clone(&clock)), tls);
        let search = match &plan.search {
            Some(search) => Search::new(search, env, of_operator.clone(), Arc::clone(&clock)),
            None => Err("the world file has no `web.search`".to_owned()),
        };
        let google = match &plan.google_search {
            Some(google) => Google::new(google, env, of_operator, clock),
            None => Err("the world file has no `web.google_search`".to_owned()),
        };
        Ok(Self { dialer, fetcher, search, google })
    }

    /// Parses the address of a page, and finds out whether it may be opened and can be reached.
    ///
    /// # Errors
    /// As `requests::parse` and [`Dialer::dial`]; `PolicyDenied` if the site forbids it and the world respects that.
    pub async fn reach(&self, text: &str) -> Result<url::Url, Refusal> {
        let url = requests::parse(text)?;
        self.fetcher.check_robots(&url).await?;
        if let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) {
            self.dialer.dial(&host, port).await?;
        }
        Ok(url)
    }
}
