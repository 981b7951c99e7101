//! What users have of the Java modules: their reference, and jars that a project of their own depends on as the guide says.

use crate::process::run_quietly;
use crate::workspace::Workspace;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Processor time of each step.
const LIMIT: Duration = Duration::from_secs(5 * 60);
const GUIDE: &str = "docs/guide.md";
/// The modules, and the programs of their users, a folder each, in the order in which the guide shows the dependencies.
const CONSUMERS: [&str; 2] = ["java", "jetty"];
/// What such a program prints.
const SAYS: &str = "consumer: hello";
const DONE: &str = "target/maven-javadoc-plugin-stale-data.txt";
/// Goals by their full names, of the versions that the modules use: a project without plugins of its own gets older ones.
const COMPILE: &str = "org.apache.maven.plugins:maven-compiler-plugin:3.14.0:compile";
const EXECUTE: &str = "org.codehaus.mojo:exec-maven-plugin:3.5.1:exec";

/// What failed, with what Maven has said.
pub enum Failure {
    /// The reference or the jars. Maven may have had to get plugins for that.
    Building(String),
    /// A user's program. All that it needs is there.
    Using(String),
}

/// Builds the reference of both modules, in which warnings are errors, installs the jars into a repository of this workspace's, and
/// runs each user's program against them. Returns how many checks passed.
pub fn check(workspace: &Workspace, java_home: &Path) -> Result<u64, Failure> {
    let folder = workspace.target.join("java-consumers");
    let repository =
        repository(&folder).map_err(|error| Failure::Building(format!("a repository for Maven: {error}")))?;
    for module in CONSUMERS {
        // By this the plugin remembers what it has done, and it does not do it again where only the text of a comment has changed.
        let done = workspace.root.join("bindings").join(module).join(DONE);
        remove(fs::remove_file(done)).map_err(|error| Failure::Building(format!("{DONE}: {error}")))?;
    }
    let mut install = maven(java_home, &workspace.root.join("bindings"), &repository);
    install.args(["install", "javadoc:javadoc", "-Dmaven.test.skip=true", "-Dexec.skip=true"]);
    install.arg("-Dcci.folder=debug").arg(format!("-Dcci.target={}", workspace.target.display()));
    run_quietly("the reference and the jars", &mut install, LIMIT).map_err(Failure::Building)?;
    use_them(workspace, java_home, &folder, &repository).map_err(Failure::Using)?;
    Ok(1 + CONSUMERS.len() as u64)
}

fn use_them(workspace: &Workspace, java_home: &Path, folder: &Path, repository: &Path) -> Result<(), String> {
    let guide =
        fs::read_to_string(workspace.root.join(GUIDE)).map_err(|error| format!("{GUIDE}: {error}"))?;
    let dependencies = dependencies_in(&guide);
    if dependencies.len() != CONSUMERS.len() {
        let count = dependencies.len();
        return Err(format!("{GUIDE} has {count} dependencies for Maven, and there are {}", CONSUMERS.len()));
    }
    for (name, dependency) in CONSUMERS.into_iter().zip(dependencies) {
        let project = folder.join(name);
        let program = workspace.root.join("bindings/consumer").join(name).join("Consumer.java");
        write(&project, &program, dependency).map_err(|error| format!("a project in {name}: {error}"))?;
        let mut run = maven(java_home, &project, repository);
        run.args([COMPILE, EXECUTE]).arg(format!("-Dexec.executable={}/bin/java", java_home.display()));
        run.arg("-Dexec.args=--enable-native-access=ALL-UNNAMED -classpath %classpath Consumer");
        let lines = run_quietly(&format!("a user's program, {name}"), &mut run, LIMIT)?;
        if !lines.iter().any(|line| line.ends_with(SAYS)) {
            return Err(format!("a user's program, {name}, does not say `{SAYS}`:\n{}", lines.join("\n")));
        }
    }
    Ok(())
}

fn maven(java_home: &Path, folder: &Path, repository: &Path) -> Command {
    let mut maven = Command::new("mvn");
    maven
        .args(["--batch-mode", "--quiet", "-Dstyle.color=never"])
        .arg(format!("-Dmaven.repo.local={}", repository.display()));
    maven.current_dir(folder).env("JAVA_HOME", java_home);
    maven
}

/// A local repository without jars of ours. It begins as a copy of the user's, so that little has to be fetched again, and stays.
fn repository(folder: &Path) -> io::Result<PathBuf> {
    let repository = folder.join("repository");
    if !repository.exists() {
        fs::create_dir_all(&repository)?;
        let users = std::env::var_os("HOME").map(|home| Path::new(&home).join(".m2/repository"));
        if let Some(users) = users.filter(|users| users.exists()) {
            copy(&users, &repository)?;
        }
    }
    remove(fs::remove_dir_all(repository.join("org/cci")))?;
    Ok(repository)
}

/// What is removed need not be there.
fn remove(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copied = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &copied)?;
        } else {
            fs::copy(entry.path(), copied)?;
        }
    }
    Ok(())
}

/// Makes a project anew: the program, and what Maven must know of any project beside the dependency.
fn write(project: &Path, program: &Path, dependency: &str) -> io::Result<()> {
    remove(fs::remove_dir_all(project))?;
    let sources = project.join("src/main/java");
    fs::create_dir_all(&sources)?;
    fs::copy(program, sources.join("Consumer.java"))?;
    let description = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n<modelVersion>4.0.0</modelVersion>\n\
         <groupId>example</groupId>\n<artifactId>consumer</artifactId>\n<version>1</version>\n\
         <properties>\n<maven.compiler.release>22</maven.compiler.release>\n\
         <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>\n</properties>\n\
         <dependencies>\n{dependency}\n</dependencies>\n</project>\n"
    );
    fs::write(project.join("pom.xml"), description)
}

/// What stands in the guide for a user's `pom.xml`, without the fences.
fn dependencies_in(guide: &str) -> Vec<&str> {
    let blocks = guide.split("```xml\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    blocks.filter(|block| block.starts_with("<dependency>") && block.ends_with("</dependency>")).collect()
}

#[cfg(test)]
mod tests {
    use super::dependencies_in;

    #[test]
    fn dependencies_are_found_and_other_blocks_are_not() {
        let guide = "text\n```xml\n<dependency>\n  one\n</dependency>\n```\n```sh\nmvn\n```\n```xml\n<settings/>\n```\n\
                     ```xml\n<dependency>two</dependency>\n```\n";
        assert_eq!(
            dependencies_in(guide),
            ["<dependency>\n  one\n</dependency>", "<dependency>two</dependency>"]
        );
        assert!(dependencies_in("nothing").is_empty());
    }
}
