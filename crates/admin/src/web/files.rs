//! The files of the page, which are part of the program, each plain and compressed. A client gets gzip only if it asks for it.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, VARY};
use hyper::{Response, StatusCode};

/// Path, type and content of a file.
type Asset = (&'static str, &'static str, &'static [u8]);

const ASSETS: [Asset; 4] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../../../../web/dist/index.html")),
    ("/app.js", "text/javascript; charset=utf-8", include_bytes!("../../../../web/dist/app.js")),
    ("/app.css", "text/css; charset=utf-8", include_bytes!("../../../../web/dist/app.css")),
    ("/favicon.svg", "image/svg+xml", include_bytes!("../../../../web/dist/favicon.svg")),
];

/// One file of the page, built into the program.
pub(super) struct File {
    /// The path in the URL.
    pub path: &'static str,
    content_type: &'static str,
    plain: Encoded,
    gzip: Encoded,
}

/// A file's bytes in one encoding, and their entity tag.
struct Encoded {
    tag: HeaderValue,
    bytes: Bytes,
}

/// All files, compressed once.
pub(super) fn all() -> Vec<File> {
    ASSETS.iter().filter_map(File::of).collect()
}

impl File {
    fn of((path, content_type, content): &Asset) -> Option<Self> {
        use std::io::Write;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(content).ok()?;
        let sum: String = shared_config::sum(content).chars().take(16).collect();
        let encoded = |suffix: &str, bytes: Bytes| Some(Encoded { tag: HeaderValue::from_str(&format!("\"{sum}{suffix}\"")).ok()?, bytes });
        let plain = encoded("", Bytes::from_static(content))?;
        Some(Self { path, content_type, plain, gzip: encoded("-gzip", gzip.finish().ok()?.into())? })
    }

    /// The answer to a request with these headers: 304 if the client has this version.
    pub(super) fn answer(&self, request: &HeaderMap) -> Response<Full<Bytes>> {
        let is_packed = accepts_gzip(request);
        let encoded = if is_packed { &self.gzip } else { &self.plain };
        let is_known = request.get(IF_NONE_MATCH) == Some(&encoded.tag);
        let mut response = Response::new(if is_known { Full::default() } else { Full::new(encoded.bytes.clone()) });
        let headers = response.headers_mut();
        headers.insert(ETAG, encoded.tag.clone());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if is_packed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

/// Whether `Accept-Encoding` names gzip, or `*`, with a weight above 0 (RFC 9110, section 12.5.3).
fn accepts_gzip(request: &HeaderMap) -> bool {
    let lines = request.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    let mut codings = lines.flat_map(|line| line.split(',')).map(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        (name.trim().to_ascii_lowercase(), weight.is_ok_and(|weight| weight > 0.0))
    });
    let (mut named, mut any) = (None, false);
    for (name, is_wanted) in &mut codings {
        match name.as_str() {
            "gzip" | "x-gzip" => named = Some(is_wanted),
            "*" => any = is_wanted,
            _ => {}
        }
    }
    named.unwrap_or(any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_for_who_asks_for_it() {
        let accepts = |line: &'static str| accepts_gzip(&HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(line))]));
        assert!(!accepts_gzip(&HeaderMap::new()));
        for line in ["gzip", "br, GZIP;q=0.5", "*", "deflate, x-gzip", "*;q=0, gzip"] {
            assert!(accepts(line), "{line}");
        }
        for line in ["", "identity", "br", "gzip;q=0", "gzip; q=0.000", "*, gzip;q=0", "*;q=0", "gzip;q=x"] {
            assert!(!accepts(line), "{line}");
        }
    }

    #[test]
    fn each_encoding_has_its_own_tag() {
        let file = all().into_iter().find(|file| file.path == "/").unwrap();
        let ask = |headers: &[(hyper::header::HeaderName, &HeaderValue)]| {
            file.answer(&headers.iter().map(|(name, value)| (name.clone(), (*value).clone())).collect())
        };
        let gzip = HeaderValue::from_static("gzip");
        let (plain, packed) = (ask(&[]), ask(&[(ACCEPT_ENCODING, &gzip)]));
        assert_eq!((plain.headers().get(CONTENT_ENCODING), packed.headers().get(CONTENT_ENCODING)), (None, Some(&gzip)));
        let (of_plain, of_packed) = (&plain.headers()[ETAG], &packed.headers()[ETAG]);
        assert_eq!(ask(&[(IF_NONE_MATCH, of_plain)]).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(ask(&[(IF_NONE_MATCH, of_packed), (ACCEPT_ENCODING, &gzip)]).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(ask(&[(IF_NONE_MATCH, of_packed)]).status(), StatusCode::OK, "it has the other encoding");
    }
}
