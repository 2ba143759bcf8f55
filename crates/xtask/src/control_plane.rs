//! A real control plane: etcd, kube-apiserver and kube-controller-manager.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    certificates,
    namespaces::ADDRESS,
    process::{Background, say, wait},
    programs::Programs,
};

/// How long the control plane gets to be ready; it takes seconds.
const DEADLINE: Duration = Duration::from_secs(120);

/// A control plane that runs.
pub(crate) struct ControlPlane {
    pub(crate) kubeconfig: PathBuf,
    _processes: Vec<Background>,
}

/// Starts it in `folder`. `with_scheduler` adds kube-scheduler.
pub(crate) fn start(
    programs: &Programs,
    folder: &Path,
    with_scheduler: bool,
) -> anyhow::Result<ControlPlane> {
    let server = format!("https://{ADDRESS}:6443");
    let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), ADDRESS.parse()?, "10.96.0.1".parse()?];
    let kubeconfig = folder.join("kubeconfig");
    std::fs::write(&kubeconfig, certificates::write(folder, &addresses, &server)?)?;
    let mut processes = Vec::new();
    let mut start = |name: &str, program: PathBuf, flags: &[String]| {
        let started =
            Background::start(name, folder, Command::new(program).args(flags).current_dir(folder))?;
        processes.push(started);
        anyhow::Ok(())
    };
    let flags =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    let etcd = "http://127.0.0.1:2379";
    // What is in it is gone with the process anyway.
    start(
        "etcd",
        programs.etcd(),
        &flags(&format!(
            "--data-dir etcd --listen-client-urls {etcd} --advertise-client-urls {etcd} --unsafe-no-fsync"
        )),
    )?;
    start(
        "kube-apiserver",
        programs.kube("kube-apiserver"),
        &flags(&format!(
            "--etcd-servers={etcd} --secure-port=6443 --advertise-address={ADDRESS} --tls-cert-file=apiserver.crt \
             --tls-private-key-file=apiserver.key --client-ca-file=ca.crt --service-account-key-file=sa.pub \
             --service-account-signing-key-file=sa.key --service-account-issuer=https://kubernetes.default.svc \
             --service-cluster-ip-range=10.96.0.0/16 --authorization-mode=Node,RBAC --allow-privileged=true \
             --kubelet-preferred-address-types=InternalIP --kubelet-client-certificate=admin.crt \
             --kubelet-client-key=admin.key"
        )),
    )?;
    let config = kubeconfig.display();
    start(
        "kube-controller-manager",
        programs.kube("kube-controller-manager"),
        &flags(&format!(
            "--kubeconfig={config} --leader-elect=false --use-service-account-credentials=true \
             --service-account-private-key-file=sa.key --root-ca-file=ca.crt"
        )),
    )?;
    if with_scheduler {
        start(
            "kube-scheduler",
            programs.kube("kube-scheduler"),
            &flags(&format!("--kubeconfig={config} --leader-elect=false")),
        )?;
    }
    say("waiting for kube-apiserver");
    let kubectl = programs.kubectls().pop().unwrap_or_default();
    let ask = |path: &[&str]| {
        let asked = Command::new(&kubectl)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        asked.is_ok_and(|status| status.success())
    };
    wait("kube-apiserver to be ready", DEADLINE, || {
        for process in &mut processes[..2] {
            process.check()?;
        }
        Ok(ask(&["get", "--raw", "/readyz"]))
    })?;
    // Pods are refused before the controllers have made it.
    wait("the default service account", DEADLINE, || {
        for process in &mut processes {
            process.check()?;
        }
        Ok(ask(&["get", "serviceaccount", "default"]))
    })?;
    Ok(ControlPlane { kubeconfig, _processes: processes })
}
