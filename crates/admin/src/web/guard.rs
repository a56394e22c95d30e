//! The checks of a request's origin: names of the page, requests of other pages, cookies and tokens.

use std::net::{IpAddr, SocketAddr};

use hyper::Method;
use hyper::header::{CONTENT_TYPE, COOKIE, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use wire::auth::hash::equal;

use crate::http::is_fixed_name;

/// The origin of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    /// The address of the browser, or of the proxy before the page.
    pub peer: SocketAddr,
    /// Does it speak TLS?
    pub is_tls: bool,
    /// Did it come over loopback?
    pub is_loopback: bool,
}

impl Caller {
    /// The same with the client's address, if it comes from a trusted proxy. A header that cannot be understood changes nothing.
    pub(super) fn behind(self, trusted: &[IpAddr], headers: &HeaderMap) -> Self {
        let is_trusted = |ip: &IpAddr| trusted.contains(&ip.to_canonical());
        if !is_trusted(&self.peer.ip()) {
            return self;
        }
        // Each proxy appends its client's address. Entries before the first untrusted one may be forged.
        let lines = headers.get_all("x-forwarded-for").iter().rev().filter_map(|line| line.to_str().ok());
        let hops = lines.flat_map(|line| line.rsplit(',')).map(|hop| address_of(hop.trim()).ok_or(()));
        match hops.map_while(Result::ok).find(|hop| !is_trusted(hop)) {
            Some(client) => Self { peer: SocketAddr::new(client, 0), ..self },
            None => self,
        }
    }
}

/// An address, perhaps with a port, as some proxies write it.
fn address_of(hop: &str) -> Option<IpAddr> {
    hop.parse().ok().or_else(|| hop.parse::<SocketAddr>().ok().map(|addr| addr.ip()))
}

/// Whether `host` (a name or address, perhaps with a port) is this page's, and not another site's name that points here. A certificate
/// proves a name, so with TLS and without a list of names all are accepted.
pub(super) fn is_own_name(host: &str, hosts: &[String], is_tls: bool) -> bool {
    let has_port = |(_, port): &(&str, &str)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let name = host.rsplit_once(':').filter(has_port).map_or(host, |(name, _)| name);
    let is_listed = hosts.iter().any(|known| name.eq_ignore_ascii_case(known));
    is_fixed_name(name) || is_listed || (is_tls && hosts.is_empty())
}

/// Whether the page itself asks. A browser says so of what changes something, and of most else; ports of one host are different origins.
///
/// # Errors
/// Why not.
pub(super) fn is_from_own_page(request: &Parts, host: &str, is_tls: bool) -> Result<(), &'static str> {
    let headers = &request.headers;
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let own = format!("{}://{host}", if is_tls { "https" } else { "http" });
    let is_read = matches!(request.method, Method::GET | Method::HEAD);
    match (text("sec-fetch-site"), text(ORIGIN.as_str())) {
        (Some("same-origin"), None) => {}
        (Some("same-origin") | None, Some(origin)) if origin.eq_ignore_ascii_case(&own) => {}
        (Some("none") | None, None) if is_read => {}
        _ => return Err("requests from pages of another origin are refused"),
    }
    let is_json = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if is_read || is_json { Ok(()) } else { Err("the body must be JSON") }
}

/// Whether the request has the token that only this page got.
pub(super) fn has_token(headers: &HeaderMap, token: &str) -> bool {
    headers.get("x-tidegate-token").is_some_and(|given| equal(given.as_bytes(), token.as_bytes()))
}

const fn cookie_name(is_tls: bool) -> &'static str {
    if is_tls { "__Host-tidegate_session" } else { "tidegate_session" }
}

/// The session's id, as the browser gives it.
pub(super) fn session_id(headers: &HeaderMap, is_tls: bool) -> Option<String> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == cookie_name(is_tls)).map(|(_, id)| id.to_owned())
}

/// The cookie that says `id` from now on; an empty one ends it.
pub(super) fn cookie(id: &str, is_tls: bool) -> Option<HeaderValue> {
    let (secure, end) = (if is_tls { "; Secure" } else { "" }, if id.is_empty() { "; Max-Age=0" } else { "" });
    HeaderValue::from_str(&format!("{}={id}; Path=/; HttpOnly; SameSite=Strict{secure}{end}", cookie_name(is_tls))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    #[test]
    fn only_a_trusted_proxy_says_who_the_client_is() {
        let trusted = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        let seen = |peer: &str, lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-forwarded-for", HeaderValue::from_str(line).unwrap());
            }
            let peer = SocketAddr::new(peer.parse().unwrap(), 9);
            Caller { peer, is_tls: true, is_loopback: false }.behind(&trusted, &headers).peer.ip().to_string()
        };
        assert_eq!(seen("192.0.2.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(
            seen("192.0.2.1", &["127.0.0.1, 198.51.100.7, 192.0.2.2"]),
            "198.51.100.7",
            "what a client says of itself counts for nothing"
        );
        assert_eq!(seen("192.0.2.1", &["127.0.0.1", "198.51.100.7"]), "198.51.100.7");
        assert_eq!(seen("192.0.2.1", &["127.0.0.1, nonsense"]), "192.0.2.1");
        assert_eq!(seen("192.0.2.1", &[]), "192.0.2.1");
        assert_eq!(seen("198.51.100.8", &["127.0.0.1"]), "198.51.100.8");
    }

    #[test]
    fn names_that_somebody_else_may_lead_here_are_not_answered() {
        let listed = ["db.example".to_owned()];
        let cases = [
            ("127.0.0.1:6080", false, true),
            ("[::1]:6080", false, true),
            ("localhost", false, true),
            ("DB.example:6080", false, true),
            ("evil.example:6080", false, false),
            ("evil.example", true, false),
            ("", false, false),
        ];
        for (host, is_tls, wanted) in cases {
            assert_eq!(is_own_name(host, &listed, is_tls), wanted, "{host}");
        }
        assert!(is_own_name("any.example", &[], true) && !is_own_name("any.example", &[], false));
    }

    #[test]
    fn only_the_page_itself_changes_something() {
        const PAGE: &str = "http://127.0.0.1:6080";
        type Headers = &'static [(&'static str, &'static str)];
        let cases: [(&str, Headers, bool); 11] = [
            ("POST", &[("sec-fetch-site", "same-origin"), ("origin", PAGE)], true),
            ("POST", &[("sec-fetch-site", "same-origin")], true),
            ("POST", &[("origin", PAGE)], true),
            ("POST", &[], false),
            ("POST", &[("sec-fetch-site", "none")], false),
            // Another port of the same host is the same site, but another origin.
            ("POST", &[("sec-fetch-site", "same-site"), ("origin", "http://127.0.0.1:6081")], false),
            ("POST", &[("sec-fetch-site", "same-origin"), ("origin", "https://127.0.0.1:6080")], false),
            ("POST", &[("origin", "null")], false),
            ("GET", &[], true),
            ("GET", &[("sec-fetch-site", "none")], true),
            ("GET", &[("sec-fetch-site", "cross-site")], false),
        ];
        for (method, headers, wanted) in cases {
            let mut request = Request::builder().method(method).header(CONTENT_TYPE, "application/json");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = request.body(()).unwrap().into_parts().0;
            assert_eq!(is_from_own_page(&request, "127.0.0.1:6080", false).is_ok(), wanted, "{method} {headers:?}");
        }
        // A form of another page cannot send JSON.
        let form = Request::builder().method("POST").header("origin", PAGE).header(CONTENT_TYPE, "text/plain").body(()).unwrap();
        let form = form.into_parts().0;
        assert!(is_from_own_page(&form, "127.0.0.1:6080", false).is_err());
    }
}
