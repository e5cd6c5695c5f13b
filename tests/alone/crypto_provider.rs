//! A store without TLS chooses no crypto provider. Alone in its process, which has one provider.

use tokio_rustls::rustls::crypto::CryptoProvider;
use tollgate_redis::RedisStore;

/// If the store chose a provider, an application that chooses one later would panic.
#[tokio::test]
async fn a_store_without_tls_installs_no_crypto_provider() {
    if crate::ran_in_own_process(a_store_without_tls_installs_no_crypto_provider) {
        return;
    }
    for url in ["redis://127.0.0.1:1/", "redis-sentinel://127.0.0.1:1/main", "redis-cluster://127.0.0.1:1"] {
        RedisStore::connect(url).await.unwrap();
        assert!(CryptoProvider::get_default().is_none(), "{url}");
    }
    RedisStore::connect("rediss://127.0.0.1:1/").await.unwrap();
    assert!(CryptoProvider::get_default().is_some());
}
