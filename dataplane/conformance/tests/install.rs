//! `install.sh` puts Orion at its places in a system, as a package too, and takes all of it away again.

#[allow(dead_code, reason = "what other tests need of it")]
mod orion;

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// One of each kind; that there are all is the test of `control/pages`.
const PAGES: [&str; 6] = [
    "usr/share/man/man1/orion-run.1",
    "usr/share/man/man8/oriond-serve.8",
    "usr/share/man/man1/orionctl-drain.1",
    "usr/share/bash-completion/completions/orion-smi",
    "usr/share/zsh/site-functions/_orion-shm",
    "usr/share/fish/vendor_completions.d/orion-controller.fish",
];

/// Set by who wants install.sh to build what it installs, as it does for users: a quarter of an hour on two cores. Else
/// it gets what the tests have built.
const BUILDS: &str = "ORION_TEST_INSTALL_BUILDS";

fn install(destination: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(orion_built::root().join("install.sh"));
    if std::env::var_os(BUILDS).is_none() {
        let (tools, target) = built_already();
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").expect("there is one"));
        command.env("PATH", path).env("CARGO_TARGET_DIR", target);
    }
    command.args(arguments).env("DESTDIR", destination).output().expect("install.sh starts")
}

/// A folder with a `cargo` that puts what is built for tests where `cargo build --release` puts it, into the other
/// folder, but of the packages that it was asked for alone. Cargo itself says whether it knows these and their
/// features.
fn built_already() -> &'static (PathBuf, PathBuf) {
    static MADE: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    MADE.get_or_init(|| {
        let probe: &[&str] = match Path::new("/usr/include/libelf.h").exists() {
            true => &["--features", "orion-bpf/libbpf"],
            false => &[],
        };
        let built = orion_built::build(&[&["--workspace", "--lib", "--bins"], probe].concat());
        let folder = empty_folder("built");
        let (tools, target) = (folder.join("tools"), folder.join("target"));
        std::fs::create_dir_all(&tools).expect("making a folder");
        std::fs::create_dir_all(target.join("release")).expect("making a folder");
        let packages: String = targets().iter().map(|(package, file)| format!("{package} {file}\n")).collect();
        std::fs::write(folder.join("packages"), packages).expect("writing");
        let script = format!(
            r#"#!/bin/bash
set -eu
[ "$1 $2" = "build --release" ]
"{cargo}" tree --depth 0 "${{@:3}}" >/dev/null
while [ $# -gt 0 ]; do
    if [ "$1" = -p ]; then
        for file in $(sed -n "s/^$2 //p" "{folder}/packages"); do
            [ -e "{release}/$file" ] || {{ strip -S -o "{release}/$file.new" "{built}/$file" &&
                mv "{release}/$file.new" "{release}/$file"; }}
        done
    fi
    shift
done
"#,
            cargo = env!("CARGO"),
            folder = folder.display(),
            release = target.join("release").display(),
            built = built.display(),
        );
        std::fs::write(tools.join("cargo"), script).expect("writing");
        std::fs::set_permissions(tools.join("cargo"), std::fs::Permissions::from_mode(0o755)).expect("chmod");
        (tools, target)
    })
}

/// Packages of the workspace, each with a program or library of its own.
fn targets() -> Vec<(String, String)> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(orion_built::root());
    let output = cargo.output().expect("cargo starts");
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    let word = |value: &serde_json::Value| value.as_str().expect("a word").to_owned();
    let mut found = Vec::new();
    for package in list(&all["packages"]) {
        for target in list(&package["targets"]) {
            let (kinds, name) = (list(&target["kind"]), word(&target["name"]));
            if kinds.contains(&"bin".into()) {
                found.push((word(&package["name"]), name));
            } else if kinds.contains(&"cdylib".into()) {
                found.push((word(&package["name"]), format!("lib{}.so", name.replace('-', "_"))));
            }
        }
    }
    found
}

#[track_caller]
fn installed(destination: &Path, arguments: &[&str]) -> String {
    let output = install(destination, arguments);
    assert!(output.status.success(), "install.sh {arguments:?}: {}", orion::complaint(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All files and links below a folder, by their names in it.
fn files(folder: &Path) -> BTreeSet<String> {
    let (mut found, mut folders) = (BTreeSet::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).expect("below it").to_string_lossy().into_owned());
            }
        }
    }
    found
}

fn empty_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("orion-install-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("making a folder");
    folder
}

#[test]
fn a_system_has_what_it_needs_and_nothing_afterwards() {
    let folder = empty_folder("system");
    let system = folder.join("system");
    installed(&system, &["--system"]);
    let there = files(&system);
    for file in ["usr/bin/oriond", "usr/lib/orion/libcuda.so.1", "etc/orion/server.conf", "etc/logrotate.d/orion"]
        .into_iter()
        .chain(PAGES)
    {
        assert!(there.contains(file), "{file} is not among {there:?}");
    }
    units_start_what_there_is(&system);
    it_runs(&system);

    let package = folder.join("orion.deb");
    installed(&folder, &["--deb", package.to_str().expect("a plain path")]);
    let unpacked = folder.join("unpacked");
    let status = Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&unpacked).status();
    assert!(status.expect("dpkg-deb starts").success());
    assert_eq!(files(&unpacked), there, "the package has other files than the system");

    let conf = system.join("etc/orion/server.conf");
    let text = std::fs::read_to_string(&conf).expect("installed");
    std::fs::write(&conf, format!("{text}; mine\n")).expect("writing");
    installed(&system, &["--system"]);
    assert!(std::fs::read_to_string(&conf).expect("kept").ends_with("; mine\n"), "a changed file was replaced");
    assert!(installed(&system, &["--uninstall"]).contains("server.conf, which was changed"));
    assert_eq!(files(&system), BTreeSet::from(["etc/orion/server.conf".to_owned()]));
    std::fs::write(&conf, text).expect("writing");
    // Somebody else's, of another Orion.
    let theirs =
        ["usr/share/man/man1/orion-ssh.1", "usr/share/bash-completion/completions/orion-ssh", "usr/lib/orion2"];
    for file in theirs {
        let file = system.join(file);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("making a folder");
        std::fs::write(file, "theirs").expect("writing");
    }
    installed(&system, &["--uninstall"]);
    assert_eq!(files(&system), BTreeSet::from(theirs.map(str::to_owned)));
    theirs.iter().for_each(|file| std::fs::remove_file(system.join(file)).expect("it stayed"));
    // What services have written stays, is told, and goes with a word more.
    let kept = system.join("var/lib/orion/lease.key");
    std::fs::create_dir_all(kept.parent().expect("a folder")).expect("making a folder");
    std::fs::write(&kept, "key").expect("writing");
    let said = installed(&system, &["--uninstall"]);
    assert!(said.contains("what stays: ") && said.contains("var/lib/orion;") && kept.exists(), "{said}");
    installed(&system, &["--uninstall", "--purge"]);
    assert_eq!(std::fs::read_dir(&system).expect("the folder itself stays").count(), 0);
    std::fs::remove_dir_all(folder).expect("removing");
    if std::env::var_os(BUILDS).is_none() {
        let built = built_already().1.parent().expect("it lies in a folder of this test's");
        std::fs::remove_dir_all(built).expect("removing");
    }
}

fn units_start_what_there_is(system: &Path) {
    for unit in ["oriond", "orion-controller", "orion-agent"] {
        let file = system.join(format!("usr/lib/systemd/system/{unit}.service"));
        let text = std::fs::read_to_string(&file).expect("a unit");
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/")).expect("it starts something");
        let mut words = line.split(' ');
        let program = system.join(words.next().expect("a program"));
        let subcommand = words.take(1).filter(|word| !word.starts_with('-'));
        let output = Command::new(&program).args(subcommand).arg("--help").output();
        assert!(output.expect("the program starts").status.success(), "{line}");
    }
}

/// A program through what was installed, and oriond with the file that it would have.
fn it_runs(system: &Path) {
    let program =
        orion_built::build(&["-p", "orion-conformance", "--example", "hello_cudarc"]).join("examples/hello_cudarc");
    let mut command = Command::new(system.join("usr/bin/orion-run"));
    let output = command.args(["--software-gpu", "--"]).arg(program).output().expect("orion-run starts");
    assert!(output.status.success(), "{}", orion::complaint(&output));
    let mut command = Command::new(system.join("usr/bin/oriond"));
    command.args(["serve", "--show-config", "--config"]).arg(system.join("etc/orion/server.conf"));
    let output = command.output().expect("oriond starts");
    let said = String::from_utf8_lossy(&output.stdout);
    for line in ["driver = auto", "socket = /run/orion/oriond.sock", "log_file = /var/log/orion/server.log"] {
        assert!(said.lines().any(|one| one == line), "{line} is not in\n{said}");
    }
}

#[test]
fn what_is_no_way_to_install_is_refused_and_touches_nothing() {
    for arguments in [&["--sytem"][..], &["--system", "/there"], &["--deb"], &[], &["a", "b"]] {
        let output = install(Path::new("/nowhere"), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("./install.sh --system"), "{arguments:?}");
    }
}

/// `install.sh` with this umask, of programs that take no time to build and do nothing but to write down in `ran` where
/// they were.
fn install_as_if_built(folder: &Path, umask: &str, arguments: &[&str]) -> Output {
    let (tools, built) = (folder.join("tools"), folder.join("target/release"));
    for made in [&tools, &built] {
        std::fs::create_dir_all(made).expect("making a folder");
    }
    let programs = "orion-run orion-ptxas oriond orion-controller orion-agent orion-check orion-smi orion-shm \
                    orion-top orionctl orion-probe libcuda.so libcupti.so libnvidia_ml.so";
    let files = programs.split_whitespace().map(|name| built.join(name));
    for file in files.chain([tools.join("cargo")]) {
        std::fs::write(&file, format!("#!/bin/sh\necho \"$0\" >>{}\n", folder.join("ran").display())).expect("writing");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    }
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").expect("there is one"));
    let mut command = Command::new("bash");
    command.args(["-c", "umask $0; exec \"$@\"", umask]).arg(orion_built::root().join("install.sh")).args(arguments);
    command.env("PATH", path).env("CARGO_TARGET_DIR", folder.join("target")).env("DESTDIR", folder.join("system"));
    command.output().expect("install.sh starts")
}

/// The bits of folders and files, but for links.
fn modes(folder: &Path) -> BTreeSet<(PathBuf, u32)> {
    let (mut found, mut folders) = (BTreeSet::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        let mode = std::fs::metadata(&next).expect("it is there").mode() & 0o7777;
        found.insert((next.strip_prefix(folder).expect("below it").to_owned(), mode));
        if next.is_dir() {
            let all = std::fs::read_dir(&next).expect("a folder").map(|entry| entry.expect("an entry").path());
            folders.extend(all.filter(|path| !path.is_symlink()));
        }
    }
    found
}

/// Programs of every user load what is in lib/orion, those of root too.
#[test]
fn a_system_is_for_all_of_its_users_and_nobody_else_writes_to_it_whatever_the_umask() {
    let folder = empty_folder("umask");
    let mut seen = Vec::new();
    for umask in ["000", "022", "077"] {
        let output = install_as_if_built(&folder, umask, &["--system"]);
        assert!(output.status.success(), "{}", orion::complaint(&output));
        seen.push(modes(&folder.join("system")));
        assert!(seen[0].iter().all(|(_, mode)| [0o755, 0o644].contains(mode)), "umask {umask}: {seen:?}");
        std::fs::remove_dir_all(folder.join("system")).expect("removing");

        let own = folder.join("own");
        let output = install_as_if_built(&folder, umask, &[own.to_str().expect("a plain path")]);
        assert!(output.status.success(), "{}", orion::complaint(&output));
        assert!(modes(&own).iter().all(|(_, mode)| mode & 0o022 == 0), "umask {umask}: {:?}", modes(&own));
        std::fs::remove_dir_all(&own).expect("removing");
    }
    assert!(seen.iter().all(|one| *one == seen[1]), "{seen:?}");
    std::fs::remove_dir_all(&folder).expect("removing");
}

/// What was put into it, and not in its place, made an installation that looked whole.
#[test]
fn a_folder_in_the_place_of_a_file_is_no_place_for_it() {
    let folder = empty_folder("in-the-way");
    for name in ["libcuda.so.1", "libcuda.so.1.new", "libcuda.so"] {
        let own = folder.join("own");
        std::fs::create_dir_all(own.join("lib/orion").join(name)).expect("making a folder");
        let output = install_as_if_built(&folder, "022", &[own.to_str().expect("a plain path")]);
        let complaint = orion::complaint(&output);
        assert!(!output.status.success() && complaint.contains(name), "{name}: {complaint}");
        std::fs::remove_dir_all(&own).expect("removing");
    }
    std::fs::remove_dir_all(&folder).expect("removing");
}

/// Who owns a folder on the way could lead root to write, or to run, what he likes: into the system's own libcuda.so.1
/// by a link, or a program of his own that he puts in place of one that was just installed.
#[test]
fn root_writes_into_nobody_else_s_folder_and_runs_nothing_from_where_it_installs() {
    if std::fs::metadata("/proc/self").expect("this process").uid() != 0 {
        eprintln!("this user can give no folder to another one");
        return;
    }
    let folder = empty_folder("strangers");
    let stranger = |name: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).expect("making a folder");
        std::os::unix::fs::chown(&path, Some(4711), None).expect("root may");
        path
    };
    let ours = |name: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).expect("making a folder");
        path
    };
    let link = |to: &Path, from: PathBuf| std::os::unix::fs::symlink(to, from).expect("a link");
    let theirs = stranger("theirs");
    link(&ours("a"), theirs.join("link"));
    link(&theirs, ours("b/lib").join("orion"));
    stranger("c/share/man/man1");
    std::fs::set_permissions(ours("all"), std::fs::Permissions::from_mode(0o777)).expect("chmod");
    for (prefix, blamed) in
        [("theirs", "theirs"), ("theirs/deep", "theirs"), ("theirs/link", "theirs"), ("b", "lib/orion"), ("c", "man1")]
            .into_iter()
            .chain([("all/deep", "all")])
    {
        let prefix = folder.join(prefix);
        let output = install_as_if_built(&folder, "022", &[prefix.to_str().expect("a plain path")]);
        let complaint = orion::complaint(&output);
        assert!(!output.status.success() && complaint.contains(blamed), "{prefix:?}: {complaint}");
    }
    assert!(files(&theirs).iter().all(|file| file == "link") && files(&folder.join("a")).is_empty());
    // A link of root's own leads where root means it to.
    link(&ours("d"), folder.join("e"));
    let output = install_as_if_built(&folder, "022", &[folder.join("e").to_str().expect("a plain path")]);
    assert!(output.status.success(), "{}", orion::complaint(&output));
    let ran = std::fs::read_to_string(folder.join("ran")).expect("some ran");
    let [built, tools] = ["target", "tools"].map(|name| folder.join(name));
    assert!(
        ran.lines().all(|line| Path::new(line).starts_with(&built) || Path::new(line).starts_with(&tools)),
        "{ran}"
    );
    std::fs::remove_dir_all(&folder).expect("removing");
}
