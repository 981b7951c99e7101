//! Slurm for one test: its daemons in namespaces of their own, so that they end with it and use nobody's ports.

use super::folder;
use std::process::{Command, Output};

/// `FOLDER NODES COMMAND…`: starts the daemons, waits until the nodes are idle, and runs the command. It is the first process
/// of its namespace: the kernel ends all others with it.
const SCRIPT: &str = r#"
at=$1 nodes=$2; shift 2
ip link set lo up
# Names are looked up only where there is another address than that of loopback.
ip link add wire0 type veth peer name wire1 && ip addr add 10.99.1.1/24 dev wire0 && ip link set wire0 up
hostname localhost
mkdir -p $at/state $at/log $at/run
for node in $nodes; do mkdir -p $at/spool.$node $at/tmp.$node; done
dd if=/dev/urandom of=$at/key bs=128 count=1 2> /dev/null; chmod 600 $at/key
munged --force --foreground --key-file=$at/key --socket=$at/run/munge --pid-file=$at/run/munged.pid \
    --log-file=$at/log/munged --seed-file=$at/run/seed > $at/log/munged.out 2>&1 &
for turn in $(seq 100); do [ -S $at/run/munge ] && break; sleep 0.1; done
slurmctld -D -f $SLURM_CONF > $at/log/slurmctld.out 2>&1 &
for node in $nodes; do slurmd -D -N $node -f $SLURM_CONF > $at/log/slurmd.$node.out 2>&1 & done
wanted=$(echo $nodes | wc -w)
for turn in $(seq 100); do
    [ "$(timeout 2 sinfo -h -t idle -o %D 2> /dev/null)" = $wanted ] && break
    sleep 0.1
done
"$@"
"#;

const CONFIGURATION: &str = "\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=DIR/run/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
ReturnToService=2
SlurmctldPort=6917
SlurmctldPidFile=DIR/run/slurmctld.pid
SlurmdPidFile=DIR/run/slurmd.%n.pid
SlurmctldLogFile=DIR/log/slurmctld
SlurmdLogFile=DIR/log/slurmd.%n
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/spool.%n
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[6921-6922] CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=500 State=UNKNOWN
PartitionName=test Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
TmpFS=DIR/tmp.%n
";

/// Runs a shell script where Slurm has these nodes, of `n1` and `n2`. None where Slurm is not here.
pub fn run(nodes: &str, script: &str, variables: &[(&str, &str)]) -> Option<Output> {
    Command::new("slurmctld").arg("-V").output().ok()?;
    let at = folder("slurm");
    let file = at.join("slurm.conf");
    std::fs::write(&file, CONFIGURATION.replace("DIR", at.to_str().expect("UTF-8"))).expect("a file");
    let mut command = Command::new("timeout");
    command.args([
        "-s",
        "KILL",
        "60",
        "unshare",
        "--net",
        "--uts",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    command.args(["bash", "-c", SCRIPT, "bash"]).arg(&at).args([nodes, "sh", "-c", script]);
    let output = command.env("SLURM_CONF", file).envs(variables.iter().copied()).output();
    let _ = std::fs::remove_dir_all(&at);
    Some(output.expect("the command starts"))
}
