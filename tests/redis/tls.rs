//! Connections over TLS. Not every downloaded server supports it, so a proxy ends TLS in front of
//! the server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto::ring};
use tollgate::store::StoreError;
use tollgate::{Policy, Quota};
use tollgate_redis::{Error, RedisStore, RedisStoreBuilder};
use tollgate_test_servers::{Kind, Sentinel, Server};

use crate::redis::{eventually, prefix, shared, try_acquire};

/// Signs certificates.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub(super) struct Identity {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    pub(super) fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn identity(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        Identity { certificate: params.signed_by(&key, &self.0).unwrap(), key }
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }
}

/// Opens a port that speaks TLS in front of a server. With an authority it requires client
/// certificates.
pub(super) async fn before(server: &Server, identity: Identity, callers: Option<&Authority>) -> SocketAddr {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = match callers {
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.0.der().clone()).unwrap();
            let provider = Arc::new(ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => config.with_no_client_auth(),
    };
    let key = PrivateKeyDer::try_from(identity.key.serialize_der()).unwrap();
    let config = config.with_single_cert(vec![identity.certificate.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, server) = (listener.local_addr().unwrap(), server.address());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // TLS itself reports the refusal to the client.
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    let _ = copy_bidirectional(&mut stream, &mut server).await;
                }
            });
        }
    });
    address
}

fn builder(address: SocketAddr) -> RedisStoreBuilder {
    RedisStore::builder(&format!("rediss://{address}/")).prefix(prefix())
}

/// Asserts that the store decides and charges.
async fn decides(store: &RedisStore) {
    let policy = Policy::new("api", Quota::per_day(1));
    assert!(try_acquire(store, &policy, "ada", 1).await.unwrap().is_granted());
    assert!(!try_acquire(store, &policy, "ada", 1).await.unwrap().is_granted());
}

fn is_told(connected: Result<RedisStore, Error>, sign: &str) {
    let error = connected.map(|_| ()).expect_err("a connection that nobody should trust");
    assert!(error.is_configuration() && !error.is_transient(), "{error}");
    assert!(error.to_string().contains(sign), "{error}");
}

#[tokio::test]
async fn a_server_is_trusted_only_if_the_named_authority_signed_it() {
    let server = shared(Kind::Installed);
    let (authority, other) = (Authority::new(), Authority::new());
    let address = before(server, authority.identity("127.0.0.1"), None).await;
    decides(&builder(address).root_certificates(authority.pem()).connect().await.unwrap()).await;
    let both = format!("{}{}", other.pem(), authority.pem());
    decides(&builder(address).root_certificates(both).connect().await.unwrap()).await;

    is_told(builder(address).connect().await, "invalid peer certificate");
    is_told(builder(address).root_certificates(other.pem()).connect().await, "invalid peer certificate");
    let of_another = before(server, authority.identity("192.0.2.1"), None).await;
    let connected = builder(of_another).root_certificates(authority.pem()).connect().await;
    is_told(connected, "invalid peer certificate");
}

#[tokio::test]
async fn a_server_that_requires_a_client_certificate_gets_it() {
    let server = shared(Kind::Installed);
    let authority = Authority::new();
    let address = before(server, authority.identity("127.0.0.1"), Some(&authority)).await;
    let builder = || builder(address).root_certificates(authority.pem());
    let ours = authority.identity("tollgate");
    let store =
        builder().client_certificate(ours.certificate.pem(), ours.key.serialize_pem()).connect().await;
    decides(&store.unwrap()).await;

    is_told(builder().connect().await, "CertificateRequired");
    let forged = Authority::new().identity("tollgate");
    let store = builder().client_certificate(forged.certificate.pem(), forged.key.serialize_pem());
    is_told(store.connect().await, "received fatal alert");
}

#[tokio::test]
async fn invalid_certificates_are_refused_before_connecting() {
    let authority = Authority::new();
    let identity = authority.identity("tollgate");
    let (certificate, key) = (identity.certificate.pem(), identity.key.serialize_pem());
    // No server listens there. The store must fail before it connects.
    let url = "rediss://127.0.0.1:1/";
    for roots in ["", "garbage", &key] {
        is_told(RedisStore::builder(url).root_certificates(roots).connect().await, "root certificates");
    }
    for (certificate, key) in [("", &*key), (&*certificate, ""), (&*certificate, &*certificate), ("x", "x")] {
        is_told(RedisStore::builder(url).client_certificate(certificate, key).connect().await, "the client");
    }
    for url in ["redis://127.0.0.1:1/", "redis-sentinel://127.0.0.1:1/main", "redis-cluster://127.0.0.1:1"] {
        is_told(RedisStore::builder(url).root_certificates(authority.pem()).connect().await, "rediss://");
    }
    let shown = format!("{:?}", RedisStore::builder("redis://:hunter2@127.0.0.1/").secret("hunter3"));
    assert!(!shown.contains("hunter"), "{shown}");
}

/// The store connects to the nodes that a Cluster names in the same way as to the URL.
#[tokio::test]
async fn cluster_nodes_are_connected_over_tls() {
    let server = Server::start_with(Kind::Redis8_2, &["--cluster-enabled", "yes"]).unwrap();
    let (authority, other) = (Authority::new(), Authority::new());
    let seed = before(&server, authority.identity("127.0.0.1"), None).await;
    let node = before(&server, authority.identity("127.0.0.1"), None).await;
    server.command(&["CONFIG", "SET", "cluster-announce-ip", "127.0.0.1"]).unwrap();
    server.command(&["CONFIG", "SET", "cluster-announce-port", &node.port().to_string()]).unwrap();
    server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).unwrap();
    eventually("it has all slots", async || {
        server.command(&["CLUSTER", "INFO"]).unwrap().contains("cluster_state:ok")
    })
    .await;
    let builder = || RedisStore::builder(&format!("rediss-cluster://{seed}/")).prefix(prefix());
    decides(&builder().root_certificates(authority.pem()).connect().await.unwrap()).await;
    is_told(builder().root_certificates(other.pem()).connect().await, "invalid peer certificate");
}

/// The store connects to the Sentinels and to their master with certificates of the same authority.
#[tokio::test]
async fn sentinels_and_their_master_are_connected_over_tls() {
    let sentinel = Sentinel::start(Kind::Installed).unwrap();
    let authority = Authority::new();
    let one = &sentinel.sentinels()[0];
    let asked = before(one, authority.identity("127.0.0.1"), None).await;
    let monitored = async |name: &str, identity: Identity| {
        // The Sentinel speaks no TLS, so it cannot reach the master. It still names the address
        // that it monitors.
        let master = before(sentinel.master().unwrap(), identity, None).await;
        one.command(&["SENTINEL", "MONITOR", name, "127.0.0.1", &master.port().to_string(), "2"]).unwrap();
        let url = format!("rediss-sentinel://{asked}/{name}");
        RedisStore::builder(&url).prefix(prefix()).root_certificates(authority.pem()).connect().await
    };
    decides(&monitored("ours", authority.identity("127.0.0.1")).await.unwrap()).await;
    is_told(monitored("theirs", Authority::new().identity("127.0.0.1")).await, "invalid peer certificate");
    let url = format!("rediss-sentinel://{asked}/ours");
    is_told(RedisStore::builder(&url).prefix(prefix()).connect().await, "invalid peer certificate");
}
