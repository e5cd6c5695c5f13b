//! Connections by TLS: whom to trust, and who one says to be. Without the feature `tls` there is nothing of either.

use bb8_redis::redis::ConnectionInfo;

use crate::error::Error;

#[cfg(feature = "tls")]
use {
    bb8_redis::redis::{Client, ClientTlsConfig, ConnectionAddr, TlsCertificates},
    rustls::crypto::{CryptoProvider, ring},
    rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// What was given instead of what the system has.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// In PEM, as what follows.
    #[cfg(feature = "tls")]
    pub(crate) roots: Option<Vec<u8>>,
    /// A certificate, and its key.
    #[cfg(feature = "tls")]
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

#[cfg(feature = "tls")]
impl Certificates {
    /// That they are what they should be: the client of the `redis` crate takes a text without any certificate for a list of
    /// none, by which nobody is trusted.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let count = |pem: &[u8]| match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
            Ok(certificates) => certificates.len(),
            Err(_) => 0,
        };
        if self.roots.as_ref().is_some_and(|roots| count(roots) == 0) {
            return Err(Error::config("there is no certificate in the root certificates, which are in PEM"));
        }
        if let Some((certificate, key)) = &self.client {
            if count(certificate) == 0 {
                return Err(Error::config("there is no certificate in that of the client, which is in PEM"));
            }
            if PrivateKeyDer::from_pem_slice(key).is_err() {
                return Err(Error::config("there is no private key in that of the client, which is in PEM"));
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
            // It says so itself where the URL asks for no TLS.
            Some(certificates) => Client::build_with_tls(info, certificates)?.get_connection_info().clone(),
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

/// TLS needs a provider of cryptography, and the process may have chosen one. Where it has not, the first connection would
/// panic: then it is ring. Who asks for no TLS leaves the choice to others.
#[cfg(feature = "tls")]
fn ensure_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        // An error says that somebody else has been faster.
        let _ = ring::default_provider().install_default();
    }
}
