//! The place of the shared configuration: `admin-shared_config_*`.

use std::path::PathBuf;
use std::time::Duration;

use http_client::Endpoint;
use model::Secret;
use model::settings::{AdminVariables, BackendSslVerify};
use model::snapshot::TlsParams;

/// Port of etcd, where a URL names none.
const PORT: u16 = 2379;

/// How etcd is reached, and which keys are ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Asked in turn; never empty.
    pub endpoints: Vec<Endpoint>,
    /// The prefix of all keys: prefix and cluster, with a slash at the end.
    pub root: String,
    /// The last part of the root; proxies with the same name share.
    pub cluster: String,
    /// User of etcd; empty for none.
    pub username: String,
    /// For the login; not used without a user.
    pub password: Secret,
    /// How long one member may take for one answer.
    pub timeout: Duration,
    /// Most bytes of a configuration's text, and of the live keys.
    pub max_bytes: u64,
    /// Revisions that etcd keeps.
    pub history: u64,
    /// CAs and the client's certificate, for `https` members.
    pub tls: TlsParams,
}

impl Settings {
    /// Reads the variables; `None` if nothing is shared.
    ///
    /// # Errors
    /// A sentence that names the variable at fault.
    pub fn read(vars: &AdminVariables) -> Result<Option<Self>, String> {
        let urls: Vec<&str> = vars.shared_config_endpoints.split(',').map(str::trim).filter(|url| !url.is_empty()).collect();
        if urls.is_empty() {
            return Ok(None);
        }
        let endpoints = urls.into_iter().map(endpoint).collect::<Result<Vec<_>, _>>()?;
        let cluster = vars.shared_config_cluster.trim().trim_matches('/');
        if cluster.is_empty() || !cluster.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter)) {
            return Err(format!("admin-shared_config_cluster: '{cluster}' may hold only letters, digits, '.', '_' and '-'"));
        }
        let file = |name: &str| (!name.is_empty()).then(|| PathBuf::from(name));
        let tls = TlsParams {
            ca: file(&vars.shared_config_ca),
            cert: file(&vars.shared_config_cert),
            key: file(&vars.shared_config_key),
            verify: BackendSslVerify::Identity,
            ..TlsParams::default()
        };
        if endpoints.iter().any(|endpoint| endpoint.is_tls) {
            tls::to_service(&tls).map_err(|why| format!("admin-shared_config_ca, _cert, _key: {why}"))?;
        }
        Ok(Some(Self {
            endpoints,
            root: format!("{}/{cluster}/", vars.shared_config_prefix.trim_end_matches('/')),
            cluster: cluster.to_owned(),
            username: vars.shared_config_username.clone(),
            password: vars.shared_config_password.clone(),
            timeout: Duration::from_millis(vars.shared_config_timeout),
            max_bytes: vars.shared_config_max_bytes,
            history: vars.config_history_size.clamp(1, 200),
            tls,
        }))
    }
}

fn endpoint(url: &str) -> Result<Endpoint, String> {
    let bad = |why: &str| format!("admin-shared_config_endpoints: '{url}' {why}; a URL is http://host:2379 or https://host:2379");
    match Endpoint::parse(url, PORT) {
        Ok((endpoint, path)) if path == "/" => Ok(endpoint),
        Ok(_) => Err(bad("has a path")),
        // It may name a password too.
        Err("names a user") => {
            Err("admin-shared_config_endpoints: a URL names no user: set admin-shared_config_username and _password".to_owned())
        }
        Err(why) => Err(bad(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(endpoints: &str) -> Result<Option<Settings>, String> {
        let mut vars = AdminVariables::default();
        vars.set("shared_config_endpoints", endpoints).unwrap();
        Settings::read(&vars)
    }

    #[test]
    fn urls_are_read() {
        let settings = read("http://etcd1, http://127.0.0.1:2380/,http://[::1]:4001").unwrap().unwrap();
        let shown: Vec<String> = settings.endpoints.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["http://etcd1:2379", "http://127.0.0.1:2380", "http://[::1]:4001"]);
        assert_eq!(settings.root, "/tidegate/main/");
        assert!(read(" , ").unwrap().is_none());
    }

    #[test]
    fn what_is_no_url_of_etcd_is_refused_with_a_reason() {
        for (url, why) in [
            ("etcd1:2379", "no URL of"),
            ("ftp://etcd1", "does not begin with http"),
            ("http://etcd1/v3", "has a path"),
            ("http://me:secret@etcd1", "names no user"),
        ] {
            let said = read(url).unwrap_err();
            assert!(said.contains(why) || said.contains("does not begin"), "{url}: {said}");
        }
        assert!(!read("http://me:secret@etcd1").unwrap_err().contains("secret"));
    }
}
