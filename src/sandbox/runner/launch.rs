//! The command: what runs between the fork and the program. There are system calls only: no allocation, no lock.

use std::ffi::{CString, c_char, c_int, c_long};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::filter::{Instruction, filter};
use super::frame::Exec;
use super::kernel::*;
use super::places::{Failed, Place, Step, at, ruleset};
use super::protections::{Facts, Plan};
use super::tree::tasks_of;

/// All that the forked child needs, laid out before the fork, so that it only makes system calls.
pub struct Launch {
    pub stdio: [RawFd; 3],
    pub report: RawFd,
    pub programs: Vec<CString>,
    pub argv: Vec<*const c_char>,
    pub envp: Vec<*const c_char>,
    pub limits: Vec<(c_int, [u64; 2])>,
    pub identity: Option<(u32, u32)>,
    pub ruleset: Option<OwnedFd>,
    pub filter: Vec<Instruction>,
}

impl Launch {
    pub fn prepare(
        exec: &Exec,
        plan: &Plan,
        facts: &Facts,
        places: &[Place],
        stdio: [RawFd; 3],
        report: RawFd,
    ) -> Result<Launch, Failed> {
        let pointers = |list: &[CString]| list.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        let path = exec.env.iter().find_map(|pair| pair.to_bytes().strip_prefix(b"PATH=")).unwrap_or(b"/usr/bin:/bin");
        let name = exec.argv[0].to_bytes();
        let programs = if name.contains(&b'/') {
            vec![exec.argv[0].clone()]
        } else {
            path.split(|byte| *byte == b':')
                .filter_map(|folder| CString::new([folder, b"/", name].concat()).ok())
                .collect()
        };
        let mut wanted = vec![(4, u64::MAX)]; // RLIMIT_CORE, at zero below
        wanted.extend([7, 1, 9, 2, 0, 6].into_iter().zip(exec.limits)); // NOFILE FSIZE AS DATA CPU NPROC
        if exec.processes > 0 && !facts.first {
            // The kernel counts by user and user namespace. In one of its own there is the supervisor besides the command;
            // without one, whatever the user runs, of which as much as now is left out. In a container nobody could count
            // that, and the container has a bound of its own.
            let others = if plan.namespaces { 1 } else { tasks_of(plan.user.0) };
            wanted.push((6, u64::from(exec.processes) + others));
        }
        let mut limits = Vec::new();
        for (resource, value) in wanted.into_iter().filter(|(_, value)| *value != 0) {
            let mut now = [0; 2];
            libc!(getrlimit(resource, &mut now)).map_err(at(Step::Limits))?;
            let value = if resource == 4 { 0 } else { value.min(now[1]) };
            limits.push((resource, [value, value]));
        }
        Ok(Launch {
            stdio,
            report,
            programs,
            argv: pointers(&exec.argv),
            envp: pointers(&exec.env),
            limits,
            identity: if plan.namespaces { None } else { plan.identity() },
            ruleset: ruleset(exec, places, facts.landlock)?,
            filter: if facts.seccomp { filter(exec, plan.namespaces) } else { Vec::new() },
        })
    }

    /// Becomes the program. Returns only if that failed. Makes system calls only: no allocation, no lock.
    pub fn run(&self, exec: &Exec) -> (Step, Errno) {
        match self.try_run(exec) {
            Ok(errno) => (Step::Program, errno),
            Err(failed) => failed,
        }
    }

    pub fn try_run(&self, exec: &Exec) -> Result<Errno, (Step, Errno)> {
        let at = |step| move |errno| (step, errno);
        let empty: SignalSet = [0; 16];
        // Ignored signals and the mask outlive an exec; both are the runner's own affair.
        for number in 1..=64 {
            // SAFETY: installs the default action; there is no handler to be unsound.
            unsafe { signal(number, 0) };
        }
        libc!(sigprocmask(2, &empty, std::ptr::null_mut())).map_err(at(Step::Streams))?;
        libc!(setsid()).map_err(at(Step::Streams))?;
        for (place, end) in self.stdio.iter().enumerate() {
            libc!(dup2(*end, place as c_int)).map_err(at(Step::Streams))?;
        }
        for (resource, limit) in &self.limits {
            libc!(setrlimit(*resource, limit)).map_err(at(Step::Limits))?;
        }
        // SAFETY: cannot fail and touches no memory.
        unsafe { umask(exec.umask & 0o777) };
        if let Some((uid, gid)) = self.identity {
            // The supervisor's real uid is still root, so the capabilities come back for these calls.
            sys!(nr::SETRESUID, DEFAULT_ID, 0, DEFAULT_ID).map_err(at(Step::Identity))?;
            sys!(nr::SETGROUPS, 0, 0).map_err(at(Step::Identity))?;
            sys!(nr::SETRESGID, gid, gid, gid).map_err(at(Step::Identity))?;
            drop_bounding();
            sys!(nr::SETRESUID, uid, uid, uid).map_err(at(Step::Identity))?;
        }
        libc!(chdir(exec.cwd.as_ptr())).map_err(at(Step::Directory))?;
        libc!(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)).map_err(at(Step::Identity))?;
        drop_bounding();
        let (header, none) = ([0x2008_0522u32, 0], [0u32; 6]);
        sys!(nr::CAPSET, address(&header), address(&none)).map_err(at(Step::Capabilities))?;
        libc!(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)).map_err(at(Step::Capabilities))?;
        // Marks every descriptor of ours to be closed by the exec; the report pipe must live until then.
        let _ = sys!(nr::CLOSE_RANGE, 3, u32::MAX, 4);
        if let Some(set) = &self.ruleset {
            sys!(nr::LANDLOCK_RESTRICT_SELF, set.as_raw_fd(), 0).map_err(at(Step::Landlock))?;
        }
        if !self.filter.is_empty() {
            let program = (self.filter.len() as u16, self.filter.as_ptr());
            sys!(nr::SECCOMP, 1, 0, address(&program)).map_err(at(Step::Seccomp))?;
        }
        let mut last = ENOENT;
        for program in &self.programs {
            // SAFETY: both lists end in null and point at texts that `exec` and `self` keep alive.
            unsafe { execve(program.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr()) };
            match errno() {
                ENOENT | ENOTDIR => {}
                EACCES => last = EACCES,
                other => return Ok(other),
            }
        }
        Ok(last)
    }
}

/// Empties the bounding set. Without CAP_SETPCAP it fails, and then no_new_privs does the same work.
pub fn drop_bounding() {
    for capability in 0..64 {
        if libc!(prctl(PR_CAPBSET_DROP, capability as c_long, 0, 0, 0)).is_err() {
            return;
        }
    }
}

pub fn failure_record(step: Step, errno: Errno) -> [u8; 5] {
    let [a, b, c, d] = errno.to_le_bytes();
    [step as u8, a, b, c, d]
}
