//! `https://`: the roots that the system trusts, and the version that the server chooses.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::run::{Ran, command};

const LIMIT: u64 = 30;

/// A server that answers `LIMIT` requests, and refuses others.
struct Server {
    address: SocketAddr,
    /// The authority that has signed its certificate, in PEM.
    authority: PathBuf,
    version: Arc<Mutex<Option<Version>>>,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    fn start(protocol: &str) -> Server {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();

        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];

        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let version = Arc::default();
        // Tests run at the same time.
        let file = format!("authority-{}.pem", address.port());
        let authority = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
        std::fs::write(&authority, issuer.pem()).unwrap();
        runtime.spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), Arc::clone(&version)));
        Server { address, authority, version, _runtime: runtime }
    }

    /// Loads it with 100 requests. Its authority is the only root.
    fn load(&self) -> Ran {
        let url = format!("https://localhost:{}/", self.address.port());
        let output = command(&["load", &url, "-n", "100"]).env("SSL_CERT_FILE", &self.authority).output();
        Ran::from(output.unwrap())
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, version: Arc<Mutex<Option<Version>>>) {
    let answered = Arc::new(AtomicU64::new(0));
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, answered, version) = (acceptor.clone(), Arc::clone(&answered), Arc::clone(&version));
        tokio::spawn(async move {
            // It fails for a client that does not trust the certificate.
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let answer = service_fn(move |request: Request<Incoming>| {
                *version.lock().unwrap() = Some(request.version());
                let mut response = Response::new(String::new());
                if answered.fetch_add(1, Ordering::Relaxed) >= LIMIT {
                    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                }
                async { Ok::<_, Infallible>(response) }
            });
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

#[test]
fn the_server_chooses_the_version_of_http_with_tls() {
    for (protocol, version) in [("h2", Version::HTTP_2), ("http/1.1", Version::HTTP_11)] {
        let server = Server::start(protocol);
        let ran = server.load();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{protocol}: {}", ran.stdout);
        assert_eq!(ran.counts(), (LIMIT, 100 - LIMIT, 0));
        assert_eq!(*server.version.lock().unwrap(), Some(version));
    }
}

#[test]
fn a_certificate_that_is_not_trusted_is_one_error_line() {
    let (server, other) = (Server::start("h2"), Server::start("http/1.1"));
    let ran = Server { authority: other.authority, ..server }.load();
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(2), 1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("cannot connect to localhost") && ran.stderr.contains("certificate"),
        "{}",
        ran.stderr
    );
}
