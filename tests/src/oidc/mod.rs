//! Identity providers: one that lies as its test says, and a real one in a process of its own. And a browser without a
//! screen, which goes where it is sent and keeps cookies.

mod browser;
mod fake;
mod key;
mod lie;
mod real;

pub use self::{
    browser::{Browser, Page},
    fake::FakeProvider,
    lie::Lie,
    real::RealProvider,
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::error::Error;

/// A CA of a provider's own, and a certificate of it for 127.0.0.1.
struct Certified {
    /// The CA's certificate, PEM.
    ca: String,
    /// The server's, PEM.
    certificate: String,
    /// Its key, PEM.
    key: String,
}

fn certified() -> Result<Certified, Box<dyn Error>> {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name.push(rcgen::DnType::CommonName, "identity provider");
    let ca_key = KeyPair::generate()?;
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &issuer)?;
    Ok(Certified { ca: ca_pem, certificate: leaf.pem(), key: key.serialize_pem() })
}
