//! One HTTP connection to a service.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use model::snapshot::TlsParams;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::endpoint::Endpoint;

/// Most bytes of one answer. A list of 1,000 proxies in etcd has some hundred thousand.
const MOST: usize = 64 << 20;

/// A connection that is ready for a request.
#[derive(Debug)]
pub struct Line {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    /// The task that moves the bytes ends with it.
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Line {
    /// Connects, within `limit`. It uses TLS as `tls` says, if the endpoint asks for it.
    ///
    /// # Errors
    /// The address, and why the connect failed.
    pub async fn open(endpoint: &Endpoint, tls: &TlsParams, limit: Duration) -> Result<Self, String> {
        let opened = tokio::time::timeout(limit, Self::connect(endpoint, tls)).await;
        opened.unwrap_or_else(|_| Err(silence(limit))).map_err(|why| format!("{endpoint}: {why}"))
    }

    async fn connect(endpoint: &Endpoint, tls: &TlsParams) -> Result<Self, String> {
        let said = |e: &dyn std::fmt::Display| e.to_string();
        let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.map_err(|e| said(&e))?;
        let _ = tcp.set_nodelay(true);
        let (sender, task) = if endpoint.is_tls {
            let config = ::tls::to_service(tls)?;
            let name = ServerName::try_from(endpoint.host.clone()).map_err(|e| said(&e))?;
            let stream = TlsConnector::from(config).connect(name, tcp).await.map_err(|e| format!("TLS: {e}"))?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| said(&e))?;
            (sender, tokio::spawn(async move { drop(connection.await) }))
        } else {
            let (sender, connection) = handshake(TokioIo::new(tcp)).await.map_err(|e| said(&e))?;
            (sender, tokio::spawn(async move { drop(connection.await) }))
        };
        Ok(Self { sender, host: format!("{}:{}", endpoint.host, endpoint.port), task })
    }

    /// Whether another request may be sent.
    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Sends a POST with these headers beside the host's; the answer's head.
    ///
    /// # Errors
    /// The connection failed, or nothing came within `limit`.
    pub async fn send(&mut self, path: &str, headers: &[(&str, &str)], body: Bytes, limit: Duration) -> Result<Response<Incoming>, String> {
        let request = Request::post(path).header("Host", self.host.as_str());
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(Full::new(body)).map_err(|e| e.to_string())?;
        let answered = tokio::time::timeout(limit, async {
            self.sender.ready().await.map_err(|e| e.to_string())?;
            self.sender.send_request(request).await.map_err(|e| e.to_string())
        });
        answered.await.unwrap_or_else(|_| Err(silence(limit)))
    }

    /// As [`Line::send`]; the whole answer, which has `limit` for its head and again for the rest.
    ///
    /// # Errors
    /// As for [`Line::send`]; or the answer is too long.
    pub async fn ask(&mut self, path: &str, headers: &[(&str, &str)], body: Bytes, limit: Duration) -> Result<Response<Bytes>, String> {
        let (head, body) = self.send(path, headers, body, limit).await?.into_parts();
        let whole = tokio::time::timeout(limit, Limited::new(body, MOST).collect()).await;
        let whole = whole.unwrap_or_else(|_| Err(silence(limit).into())).map_err(|e| e.to_string())?;
        Ok(Response::from_parts(head, whole.to_bytes()))
    }
}

fn silence(limit: Duration) -> String {
    format!("no reply in {} ms", limit.as_millis())
}
