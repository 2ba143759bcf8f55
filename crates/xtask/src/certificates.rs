//! The certificates of a control plane that lives for minutes.

use std::{net::IpAddr, path::Path};

use anyhow::Context;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Writes an authority, the API server's certificate, the administrator's, and the key of service accounts to `folder`;
/// returns the administrator's kubeconfig.
pub(crate) fn write(folder: &Path, addresses: &[IpAddr], server: &str) -> anyhow::Result<String> {
    let put = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))
    };
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    authority.distinguished_name.push(DnType::CommonName, "ca");
    let key = KeyPair::generate()?;
    let ca = authority.self_signed(&key)?.pem();
    put("ca.crt", &ca)?;
    put("ca.key", &key.serialize_pem())?;
    let issuer = Issuer::new(authority, key);

    let mut names: Vec<String> =
        ["localhost", "kubernetes.default.svc"].map(str::to_owned).to_vec();
    names.extend(addresses.iter().map(ToString::to_string));
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    put("apiserver.crt", &params.signed_by(&key, &issuer)?.pem())?;
    put("apiserver.key", &key.serialize_pem())?;

    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.distinguished_name.push(DnType::CommonName, "admin");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    let (certificate, secret) = (params.signed_by(&key, &issuer)?.pem(), key.serialize_pem());
    put("admin.crt", &certificate)?;
    put("admin.key", &secret)?;

    let key = KeyPair::generate()?;
    put("sa.key", &key.serialize_pem())?;
    put("sa.pub", &key.public_key_pem())?;
    let encoded = |text: &str| STANDARD.encode(text);
    Ok(format!(
        "apiVersion: v1\nkind: Config\n\
         clusters:\n- name: real\n  cluster:\n    server: {server}\n    certificate-authority-data: {}\n\
         users:\n- name: admin\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n\
         contexts:\n- name: real\n  context:\n    cluster: real\n    user: admin\n    namespace: default\n\
         current-context: real\n",
        encoded(&ca),
        encoded(&certificate),
        encoded(&secret)
    ))
}
