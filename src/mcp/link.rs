//! How a server is reached.

use std::fmt;

use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::http::HttpClient;

/// How a server is reached. Its `Debug` never shows the token.
pub enum Link {
    /// Two streams, with one message on each line: the standard streams of a process. The caller owns the process
    /// and ends it after the connection is closed.
    Streams {
        /// What the server writes.
        reader: Box<dyn AsyncRead + Send + Unpin>,
        /// What the server reads.
        writer: Box<dyn AsyncWrite + Send + Unpin>,
    },
    /// Streamable HTTP.
    Http {
        /// The client. It follows no redirect.
        client: HttpClient,
        /// The address of the server, `http://..` or `https://..`.
        url: String,
        /// The token for the header `Authorization: Bearer`, without the word `Bearer`.
        token: Option<SecretString>,
    },
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Streams { .. } => f.write_str("Link::Streams"),
            Self::Http { url, token, .. } => {
                f.debug_struct("Link::Http").field("url", url).field("token", token).finish_non_exhaustive()
            }
        }
    }
}
