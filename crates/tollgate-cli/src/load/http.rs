//! Requests of HTTP/1 and HTTP/2, and calls of gRPC.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower_service::Service;

use super::args::LoadArgs;
use super::grpc;
use super::outcome::{RequestOutcome, reason};

/// What the number of the key replaces.
const KEY: &str = "{key}";

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);

pub(crate) struct HttpTarget {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    grpc: bool,
    method: Method,
    url: String,
    headers: Vec<(HeaderName, String)>,
    body: Vec<u8>,
}

impl HttpTarget {
    pub(crate) async fn open(url: &str, args: &LoadArgs) -> Result<HttpTarget, String> {
        let authority = url.split_once("://").map_or(url, |(_, rest)| rest).split(['/', '?', '#']).next();
        if authority.is_some_and(|authority| authority.contains('@')) {
            // Not shown, since it has a password.
            return Err("the URL of a load has no user: use --header 'authorization: ...'".to_owned());
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(|| {
            format!("{url:?} is not a URL: expected http://, https://, grpc:// or grpcs://")
        })?;
        let (grpc, scheme) = match scheme {
            "http" | "https" => (false, scheme),
            "grpc" => (true, "http"),
            "grpcs" => (true, "https"),
            _ => return Err(format!("{scheme:?} is no scheme of a load: use http, https, grpc or grpcs")),
        };
        let body = body(args.body.as_deref())?;
        let method = match &args.method {
            Some(_) if grpc => return Err("--method has no meaning for gRPC, which uses POST".to_owned()),
            Some(method) => method.clone(),
            None if grpc || args.body.is_some() => Method::POST,
            None => Method::GET,
        };
        let connector = connector()?;
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_max_idle_per_host(usize::MAX);
        builder.http2_only(grpc || args.http2);
        let target = HttpTarget {
            client: builder.build(connector.clone()),
            grpc,
            method,
            url: format!("{scheme}://{rest}"),
            headers: args.headers.clone(),
            body,
        };
        target.check(args, connector).await?;
        Ok(target)
    }

    /// Makes a request without sending it, and connects once.
    async fn check(
        &self,
        args: &LoadArgs,
        mut connector: HttpsConnector<HttpConnector>,
    ) -> Result<(), String> {
        let request = self.request(1)?;
        if self.grpc && request.uri().path().trim_matches('/').split('/').count() != 2 {
            return Err("the path of a gRPC URL must be /PACKAGE.SERVICE/METHOD".to_owned());
        }
        let mut texts = self.headers.iter().map(|(_, value)| value).chain([&self.url]);
        if args.keys > 1 && !texts.any(|text| text.contains(KEY)) && !contains_key(&self.body) {
            return Err("--keys needs {key} in the URL, in a --header or in the --body".to_owned());
        }
        let connected = connector.call(request.uri().clone()).await;
        let host = request.uri().authority().map_or("", |authority| authority.as_str()).to_owned();
        connected.map_err(|error| format!("cannot connect to {host}: {}", reason(&*error))).map(drop)
    }

    fn request(&self, key: u32) -> Result<Request<Full<Bytes>>, String> {
        let key = key.to_string();
        let url = self.url.replace(KEY, &key);
        let uri = Uri::try_from(&url).map_err(|error| format!("{url:?} is not a URL: {error}"))?;
        let mut request = Request::builder().method(self.method.clone()).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value.replace(KEY, &key));
        }
        let mut body = self.body.clone();
        if contains_key(&body) {
            body = String::from_utf8_lossy(&body).replace(KEY, &key).into_bytes();
        }
        if self.grpc {
            request = request.header("content-type", "application/grpc").header("te", "trailers");
            body = grpc::frame(&body);
        }
        request.body(Full::from(body)).map_err(|error| format!("--header: {}", reason(&error)))
    }

    pub(crate) async fn send(&self, key: u32) -> RequestOutcome {
        self.exchange(key).await.unwrap_or_else(RequestOutcome::Failed)
    }

    /// Reads the whole response, so that the connection can be used again.
    async fn exchange(&self, key: u32) -> Result<RequestOutcome, String> {
        let response = self.client.request(self.request(key)?).await.map_err(|error| reason(&error))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| reason(&error))?;
        Ok(match head.status {
            StatusCode::TOO_MANY_REQUESTS => RequestOutcome::Denied,
            status if status.is_client_error() || status.is_server_error() => {
                RequestOutcome::Failed(status.to_string())
            }
            _ if self.grpc => grpc::outcome(&head.headers, body.trailers()),
            _ => RequestOutcome::Allowed,
        })
    }
}

fn contains_key(body: &[u8]) -> bool {
    body.windows(KEY.len()).any(|part| part == KEY.as_bytes())
}

/// Reads `--body`.
fn body(text: Option<&str>) -> Result<Vec<u8>, String> {
    match text.map(|text| (text, text.strip_prefix('@'))) {
        None => Ok(Vec::new()),
        Some((text, None)) => Ok(text.as_bytes().to_vec()),
        Some((_, Some(file))) => {
            std::fs::read(file).map_err(|error| format!("--body: cannot read {file}: {error}"))
        }
    }
}

/// Trusts the roots that the system trusts.
fn connector() -> Result<HttpsConnector<HttpConnector>, String> {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.enforce_http(false);
    let tls = HttpsConnectorBuilder::new().with_native_roots();
    let tls = tls.map_err(|error| format!("cannot read the root certificates of the system: {error}"))?;
    Ok(tls.https_or_http().enable_all_versions().wrap_connector(tcp))
}
