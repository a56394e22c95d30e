//! The address of a service.

use std::fmt;

use hyper::Uri;

/// Host, port and whether TLS is spoken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Name or address, an IPv6 address without brackets.
    pub host: String,
    /// From the URL, or the caller's default.
    pub port: u16,
    /// Whether TLS is spoken.
    pub is_tls: bool,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

impl Endpoint {
    /// Parses a URL, and returns the path in it too. `port` is used if the URL names none.
    ///
    /// # Errors
    /// The fault, as the end of a sentence that begins with the URL. A user in the URL is a fault, because it would be shown.
    pub fn parse(url: &str, port: u16) -> Result<(Self, String), &'static str> {
        let uri: Uri = url.parse().map_err(|_| "is no URL")?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("does not begin with http:// or https://"),
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("names a user");
        }
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err("names no host");
        }
        let path = uri.path_and_query().map_or("/", |rest| rest.as_str()).to_owned();
        Ok((Self { host: host.to_owned(), port: uri.port_u16().unwrap_or(port), is_tls }, path))
    }
}
