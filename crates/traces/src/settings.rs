//! The receiver of traces, and the proxy's name in them: `mysql-trace_*`. If a setting is empty, OpenTelemetry's environment variables
//! count.

use http_client::Endpoint;
use model::MysqlVariables;
use model::Secret;
use model::settings::BackendSslVerify;
use model::snapshot::TlsParams;
use std::path::PathBuf;
use std::time::Duration;

/// Port of a receiver, where a URL names none.
const PORT: u16 = 4318;
/// The path of a receiver for traces.
const PATH: &str = "/v1/traces";

/// OpenTelemetry's variables; an empty one counts as unset.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: used as it is.
    pub traces_endpoint: String,
    /// OTEL_EXPORTER_OTLP_ENDPOINT: `/v1/traces` is added.
    pub endpoint: String,
    /// OTEL_EXPORTER_OTLP_TRACES_HEADERS, or else OTEL_EXPORTER_OTLP_HEADERS.
    pub headers: Secret,
    /// `OTEL_SERVICE_NAME`, for `service.name`.
    pub service_name: String,
    /// `OTEL_RESOURCE_ATTRIBUTES`: `name=value`, separated by commas.
    pub resource_attributes: String,
}

impl Environment {
    /// Read once at the start.
    pub fn of_process() -> Self {
        let read = |name: &str| std::env::var(name).unwrap_or_default();
        let headers = Some(read("OTEL_EXPORTER_OTLP_TRACES_HEADERS")).filter(|headers| !headers.is_empty());
        Self {
            traces_endpoint: read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
            endpoint: read("OTEL_EXPORTER_OTLP_ENDPOINT"),
            headers: Secret::new(headers.unwrap_or_else(|| read("OTEL_EXPORTER_OTLP_HEADERS"))),
            service_name: read("OTEL_SERVICE_NAME"),
            resource_attributes: read("OTEL_RESOURCE_ATTRIBUTES"),
        }
    }
}

/// How spans are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub endpoint: Endpoint,
    pub path: String,
    /// Names and values.
    pub headers: Secret,
    pub service_name: String,
    pub resource_attributes: Vec<(String, String)>,
    pub tls: TlsParams,
    pub timeout: Duration,
}

impl Settings {
    /// The settings from variables and environment; `None` if traces are off.
    pub(crate) fn read(vars: &MysqlVariables, environment: &Environment) -> Result<Option<Self>, String> {
        let (url, name) = match () {
            () if !vars.trace_endpoint.is_empty() => (vars.trace_endpoint.clone(), "mysql-trace_endpoint"),
            () if !environment.traces_endpoint.is_empty() => (environment.traces_endpoint.clone(), "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
            () if !environment.endpoint.is_empty() => {
                (format!("{}{PATH}", environment.endpoint.trim_end_matches('/')), "OTEL_EXPORTER_OTLP_ENDPOINT")
            }
            () => return Ok(None),
        };
        // The URL may hold a secret.
        let (endpoint, path) = Endpoint::parse(&url, PORT).map_err(|why| format!("{name}: its value {why}"))?;
        let headers = if vars.trace_headers.is_empty() { &environment.headers } else { &vars.trace_headers };
        let name = [&vars.trace_service_name, &environment.service_name].into_iter().find(|name| !name.is_empty());
        let attributes = [&vars.trace_resource_attributes, &environment.resource_attributes].into_iter().find(|text| !text.is_empty());
        Ok(Some(Self {
            endpoint,
            path: if path == "/" { PATH.to_owned() } else { path },
            headers: headers.clone(),
            service_name: name.map_or_else(|| "tidegate".to_owned(), Clone::clone),
            resource_attributes: attributes.map(|text| pairs(text)).unwrap_or_default(),
            tls: TlsParams {
                ca: (!vars.trace_ca.is_empty()).then(|| PathBuf::from(&vars.trace_ca)),
                verify: BackendSslVerify::Identity,
                ..TlsParams::default()
            },
            timeout: Duration::from_millis(vars.trace_timeout_ms),
        }))
    }
}

/// `name=value,name=value`; values may be percent-encoded, as the W3C's Baggage says.
pub(crate) fn pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.trim().split_once('='));
    pairs.map(|(name, value)| (name.trim().to_owned(), decoded(value.trim()))).filter(|(name, _)| !name.is_empty()).collect()
}

fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let digits = more.get(..2).filter(|_| *first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = more.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: impl Fn(&mut MysqlVariables), environment: &Environment) -> Option<Settings> {
        let mut vars = MysqlVariables::default();
        set(&mut vars);
        Settings::read(&vars, environment).unwrap()
    }

    #[test]
    fn a_setting_goes_before_the_environment() {
        let environment = Environment {
            endpoint: "http://collector:4318/".to_owned(),
            headers: Secret::new("key=a%20b"),
            service_name: "shop-proxy".to_owned(),
            resource_attributes: "deployment.environment.name=test, host.name=h1".to_owned(),
            ..Environment::default()
        };
        let of_environment = read(|_| {}, &environment).unwrap();
        assert_eq!((of_environment.endpoint.to_string().as_str(), &*of_environment.path), ("http://collector:4318", PATH));
        assert_eq!(of_environment.service_name, "shop-proxy");
        assert_eq!(of_environment.resource_attributes.len(), 2);
        assert_eq!(pairs(&of_environment.headers.expose_text()), [("key".to_owned(), "a b".to_owned())]);
        let own = read(
            |vars| {
                vars.trace_endpoint = "https://[::1]".to_owned();
                vars.trace_service_name = "mine".to_owned();
            },
            &environment,
        );
        let own = own.unwrap();
        assert_eq!((own.endpoint.to_string().as_str(), &*own.path, &*own.service_name), ("https://[::1]:4318", PATH, "mine"));
        let as_it_is = Environment { traces_endpoint: "http://c/otlp/x".to_owned(), ..environment };
        assert_eq!(read(|_| {}, &as_it_is).unwrap().path, "/otlp/x");
        assert!(read(|_| {}, &Environment::default()).is_none());
    }

    #[test]
    fn what_is_no_url_is_told_without_it() {
        let environment = Environment { endpoint: "http://me:secret@host".to_owned(), ..Environment::default() };
        let why = Settings::read(&MysqlVariables::default(), &environment).unwrap_err();
        assert_eq!(why, "OTEL_EXPORTER_OTLP_ENDPOINT: its value names a user");
    }
}
