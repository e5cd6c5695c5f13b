//! TLS: trusted root certificates and the client's own. Empty without the feature `tls`.

use bb8_redis::redis::ConnectionInfo;

use crate::error::Error;

#[cfg(feature = "tls")]
use {
    crate::error::Cause,
    bb8_redis::redis::{Client, ClientTlsConfig, ConnectionAddr, TlsCertificates},
    rustls::crypto::{CryptoProvider, ring},
    rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// The certificates of a store's builder.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// In PEM. They replace the system's.
    #[cfg(feature = "tls")]
    pub(crate) roots: Option<Vec<u8>>,
    /// A certificate and its key, in PEM.
    #[cfg(feature = "tls")]
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

#[cfg(feature = "tls")]
impl Certificates {
    /// Checks that each text contains what it should. The `redis` crate accepts a text without any
    /// certificate as an empty list, and then trusts no server.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let count = |pem: &[u8]| match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
            Ok(certificates) => certificates.len(),
            Err(_) => 0,
        };
        if self.roots.as_ref().is_some_and(|roots| count(roots) == 0) {
            return Err(Error::config("the root certificates must be PEM with at least one certificate"));
        }
        if let Some((certificate, key)) = &self.client {
            if count(certificate) == 0 {
                return Err(Error::config(
                    "the client certificate must be PEM with at least one certificate",
                ));
            }
            if PrivateKeyDer::from_pem_slice(key).is_err() {
                return Err(Error::config(
                    "the key of the client certificate must be PEM with a private key",
                ));
            }
        }
        Ok(())
    }

    fn given(&self) -> Option<TlsCertificates> {
        let client = self.client.clone();
        (self.roots.is_some() || client.is_some()).then(|| TlsCertificates {
            root_cert: self.roots.clone(),
            client_tls: client.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
        })
    }

    pub(crate) fn of_server(&self, info: ConnectionInfo) -> Result<ConnectionInfo, Error> {
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            ensure_crypto_provider();
        }
        Ok(match self.given() {
            // Fails if the URL is not one of TLS.
            Some(certificates) => {
                let client = Client::build_with_tls(info, certificates).map_err(Cause::Redis)?;
                client.get_connection_info().clone()
            }
            None => info,
        })
    }
}

#[cfg(not(feature = "tls"))]
impl Certificates {
    pub(crate) fn validate(&self) -> Result<(), Error> {
        Ok(())
    }

    pub(crate) fn of_server(&self, info: ConnectionInfo) -> Result<ConnectionInfo, Error> {
        Ok(info)
    }
}

/// Chooses ring as rustls's crypto provider if the process has chosen none. Without one, the first
/// connection would panic. This is called only for URLs of TLS.
#[cfg(feature = "tls")]
fn ensure_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        // An error means that another thread has just chosen one.
        let _ = ring::default_provider().install_default();
    }
}
