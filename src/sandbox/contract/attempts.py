# Attempts to get out and to get around a bound, made inside a sandbox and generated from tables: calls by targets by ways.
# Before it stand the definitions of `place.rs`, and where things are outside. Each attempt is written so that its success
# would be a breach. It prints one line each: `RESULT kind/name=` and `ok` or the name of the error.
import fcntl, itertools, struct
arm = os.uname().machine == 'aarch64'
me = os.getcwd()
s = lambda text: ctypes.c_char_p(text if isinstance(text, bytes) else text.encode())
seen = {}
def a(kind, name, f):
    seen[kind] = seen.get(kind, 0) + 1
    t(f'{kind}/{seen[kind]} {name}'.replace('=', '-'), f)
def nr(x86, aarch64):
    return aarch64 if arm else x86
def calls(kind, table):
    for name, x86, aarch64, arguments in table:
        if nr(x86, aarch64) is not None: a(kind, name, lambda: call(nr(x86, aarch64), *arguments))

# A file that runs as its owner.
open('plain', 'w').write('x')
fd = os.open('plain', os.O_RDONLY)
AT, CREATE, NAMELESS = -100, 0o101, 0o20000000 | os.O_DIRECTORY | 1
for bits in [0o4755, 0o2755, 0o6755, 0o4000, 0o7777]:
    n = f'new{bits:o}'
    calls('set-id', [
        (f'chmod {bits:o}', 90, None, (s('plain'), bits)), (f'fchmod {bits:o}', 91, 52, (fd, bits)),
        (f'fchmodat {bits:o}', 268, 53, (AT, s('plain'), bits)), (f'fchmodat2 {bits:o}', 452, 452, (AT, s('plain'), bits, 0)),
        (f'open {bits:o}', 2, None, (s(n), CREATE, bits)), (f'openat {bits:o}', 257, 56, (AT, s(n), CREATE, bits)),
        (f'openat nameless {bits:o}', 257, 56, (AT, s('.'), NAMELESS, bits)), (f'creat {bits:o}', 85, None, (s(n), bits)),
        (f'mkdir {bits:o}', 83, None, (s(n), bits)), (f'mkdirat {bits:o}', 258, 34, (AT, s(n), bits)),
        (f'mknod {bits:o}', 133, None, (s(n), 0o100000 | bits, 0)), (f'mknodat {bits:o}', 259, 33, (AT, s(n), 0o100000 | bits, 0)),
        (f'openat2 {bits:o}', 437, 437, (AT, s(n), s(struct.pack('QQQ', CREATE, bits, 0)), 24)),
    ])
# Attributes that grant.
for name in ['security.capability', 'security.selinux', 'security.ima', 'system.posix_acl_access', 'trusted.x', 'user.x']:
    value = s(b'\1\0\0\2' + b'\xff' * 16)
    calls('attributes', [
        ('setxattr ' + name, 188, 5, (s('plain'), s(name), value, 20, 0)), ('lsetxattr ' + name, 189, 6, (s('plain'), s(name), value, 20, 0)),
        ('fsetxattr ' + name, 190, 7, (fd, s(name), value, 20, 0)), ('setxattrat ' + name, 463, 463, (AT, s('plain'), 0, s(name), value, 16)),
    ])
# New namespaces.
SPACES = {'time': 0x80, 'mnt': 0x20000, 'cgroup': 0x2000000, 'uts': 0x4000000, 'ipc': 0x8000000, 'user': 0x10000000, 'pid': 0x20000000, 'net': 0x40000000}
for name, bits in SPACES.items():
    calls('namespaces', [('unshare ' + name, 272, 97, (bits,)), ('unshare user and ' + name, 272, 97, (bits | 0x10000000,))])
    if name != 'time': calls('namespaces', [('clone ' + name, 56, 220, (bits | 17, 0, 0, 0, 0)), ('setns ' + name, 308, 268, (fd, bits))])
    a('namespaces', 'clone3 ' + name, lambda: call(435, s(struct.pack('Q', bits) + bytes(80)), 88))
# Mounts.
for kind, target in itertools.product(['proc', 'sysfs', 'tmpfs', 'cgroup2', 'devtmpfs', 'overlay', 'bpf', 'debugfs'], ['/tmp', me]):
    calls('mounts', [(f'mount {kind} {target}', 165, 40, (s('x'), s(target), s(kind), 0, 0))])
for target in ['/', '/proc', '/tmp', '/usr', me]:
    calls('mounts', [('bind ' + target, 165, 40, (s(target), s(me), 0, 4096, 0)), ('umount ' + target, 166, 39, (s(target), 2)),
        ('chroot ' + target, 161, 51, (s(target),)), ('open_tree ' + target, 428, 428, (AT, s(target), 1)),
        ('mount_setattr ' + target, 442, 442, (AT, s(target), 0x8000, s(struct.pack('QQQQ', 0, 1, 0, 0)), 32)), ('fspick ' + target, 433, 433, (AT, s(target), 0))])
calls('mounts', [('pivot_root', 155, 41, (s(me), s(me))), ('fsopen', 430, 430, (s('tmpfs'), 0)), ('fsmount', 432, 432, (fd, 0, 0)), ('move_mount', 429, 429, (AT, s(me), AT, s('/tmp'), 0))])
# The kernel's own affairs.
calls('kernel', [
    ('kexec_load', 246, 104, ()), ('kexec_file_load', 320, 294, ()), ('init_module', 175, 105, ()), ('finit_module', 313, 273, ()),
    ('delete_module', 176, 106, (s('x'), 0)), ('reboot', 169, 142, (0xfee1dead, 672274793, 0)), ('swapon', 167, 224, (s('plain'), 0)),
    ('swapoff', 168, 225, (s('plain'),)), ('acct', 163, 89, (s('plain'),)), ('quotactl', 179, 60, (0x800002, 0, 0, 0)), ('quotactl_fd', 443, 443, (fd, 0x800002, 0, 0)),
    ('syslog', 103, 116, (3, 0, 0)), ('syslog size', 103, 116, (10, 0, 0)), ('syslog clear', 103, 116, (5, 0, 0)), ('sethostname', 170, 161, (s('x'), 1)), ('setdomainname', 171, 162, (s('x'), 1)),
    ('settimeofday', 164, 170, (0, 0)), ('clock_settime', 227, 112, (0, s(bytes(16)))), ('clock_adjtime', 305, 266, (0, s(bytes(208)))), ('adjtimex', 159, 171, (s(bytes(208)),)),
    ('vhangup', 153, 58, ()), ('nfsservctl', 180, 42, ()), ('lookup_dcookie', 212, 18, ()), ('iopl', 172, None, (3,)), ('ioperm', 173, None, (0, 8, 1)), ('modify_ldt', 154, None, (1, 0, 0)),
    ('uselib', 134, None, (s('plain'),)), ('personality', 135, 92, (0x400000,)), ('personality without random addresses', 135, 92, (0x40000,)), ('migrate_pages', 256, 238, (0, 0, 0, 0)), ('move_pages', 279, 239, (0, 0, 0, 0, 0, 0)),
])
# Ways around the filter, and memory in nobody's account.
calls('engines', [('io_uring_setup', 425, 425, (8, s(bytes(120)))), ('io_uring_enter', 426, 426, ()), ('io_uring_register', 427, 427, ()), ('userfaultfd', 323, 282, (0,)), ('userfaultfd user', 323, 282, (1,)),
    ('fanotify_init', 300, 262, (0, 0)), ('fanotify_init fid', 300, 262, (0x200, 0)), ('fanotify_mark', 301, 263, (fd, 1, 1, AT, s('/'))), ('vmsplice', 278, 75, (1, 0, 0, 0)), ('memfd_create', 319, 279, (s('x'), 0)),
    ('memfd_create sealed', 319, 279, (s('x'), 3)), ('memfd_secret', 447, 447, (0,)), ('name_to_handle_at', 303, 264, (AT, s('plain'), s(bytes(136)), s(bytes(4)), 0)), ('open_by_handle_at', 304, 265, (fd, s(bytes(136)), 0)), ('process_mrelease', 448, 448, (fd, 0))])
calls('engines', [(f'bpf {command}', 321, 280, (command, s(bytes(128)), 128)) for command in range(10)])
calls('engines', [(f'perf_event_open {kind}', 298, 241, (s(struct.pack('II', kind, 112) + bytes(104)), 0, -1, -1, 0)) for kind in range(6)])
calls('keys', [(f'keyctl {command}', 250, 219, (command, -3, 1)) for command in range(0, 30)])
calls('keys', [('add_key ' + kind, 248, 217, (s(kind), s('x'), s('x'), 1, -3)) for kind in ['user', 'keyring', 'logon', 'big_key']])
calls('keys', [(f'request_key {ring}', 249, 218, (s('user'), s('x'), 0, ring)) for ring in [-1, -3, -4, -5]])
calls('unknown calls', [(f'number {number}', number, number, (0, 0, 0)) for number in list(range(470, 500)) + [1000, 0x3fffffff]])
def foreign(number):
    child = os.fork()
    if child == 0:
        os._exit(0 if libc.syscall(ctypes.c_long(0x40000000 | number), 0, 0, 0) >= 0 else 1)
    if os.waitpid(child, 0)[1] != 0: raise OSError(errno.EPERM, 'refused')
for number in range(0, 40, 2): a('foreign calls', f'x32 {number}', lambda: foreign(number))
for size in [4096, 1 << 20, 1 << 28, 1 << 31]:
    calls('shared objects', [(f'shmget {size} {key}', 29, 194, (key, size, 0o1777)) for key in [0, 4711]])
calls('shared objects', [('shmat', 30, 196, (0, 0, 0)), ('shmctl', 31, 195, (0, 0, 0)), ('msgctl', 71, 187, (0, 0, 0)), ('semctl', 66, 191, (0, 0, 0, 0)), ('semop', 65, 193, (0, 0, 0))])
calls('shared objects', [(f'{name} {key}', x, y, (key, 1, 0o1777) if name == 'semget' else (key, 0o1777)) for name, x, y in [('semget', 64, 190), ('msgget', 68, 186)] for key in [0, 77, 4711]])
calls('shared objects', [(f'mq_open {name}', 240, 180, (s(name), 0o102, 0o600, 0)) for name in ['q', 'ghost', 'x']])
# Sockets.
for family, kind in itertools.product([n for n in range(46)], [1, 2, 3]):
    calls('sockets', [(f'family {family} type {kind}', 41, 198, (family, kind, 0))])
for family, kind in itertools.product([2, 10, 16, 17, 38, 40], [1 | 1 << 11, 2 | 1 << 19, 5]):
    calls('sockets', [(f'family {family} type {kind:x}', 41, 198, (family | 1 << 32, kind, 0))])
for host in ['127.0.0.1', '127.0.0.53', '172.17.0.1', '169.254.169.254', '10.0.0.1', '192.168.0.1', '0.0.0.0', '1.1.1.1', '100.100.100.200', '::1', 'fe80::1', '::ffff:127.0.0.1', 'fd00:ec2::254']:
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    a('network', 'tcp ' + host, lambda: socket.create_connection((host, port), 1))
    a('network', 'udp ' + host, lambda: socket.socket(family, socket.SOCK_DGRAM).sendto(b'x', (host, port)))
a('network', 'listen', lambda: socket.create_server(('127.0.0.1', 0)))
for path in [f'{data}/ghostd.sock', f'{inside}/socket', '\0' + abstract, '/run/docker.sock', '/var/run/docker.sock', '/run/containerd/containerd.sock', '/run/dbus/system_bus_socket', '/run/systemd/private']:
    for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET]:
        a('local sockets', f'{kind} {path[:40]!r}', lambda: socket.socket(socket.AF_UNIX, kind).connect(path))
for kind in [2, 3, 4]: a('local sockets', f'pair {kind}', lambda: socket.socketpair(socket.AF_UNIX, kind))
# Other processes.
for who, pid in outsiders.items():
    calls('processes', [(f'kill {signal} {who}', 62, 129, (pid, signal)) for signal in [0, 1, 9, 15, 19]] + [(f'tkill {who}', 200, 130, (pid, 9)), (f'tgkill {who}', 234, 131, (pid, pid, 9)),
        (f'rt_sigqueueinfo {who}', 129, 138, (pid, 9, s(bytes(128)))), (f'prlimit {who}', 302, 261, (pid, 7, s(struct.pack('QQ', 1, 1)), 0)), (f'setpriority {who}', 141, 140, (0, pid, 19)),
        (f'sched_setaffinity {who}', 203, 122, (pid, 8, s(b'\1' + bytes(7)))), (f'sched_setscheduler {who}', 144, 119, (pid, 5, s(bytes(4)))), (f'ioprio_set {who}', 251, 30, (1, pid, 3 << 13))])
    def by_descriptor(): call(424, call(434, pid, 0), 9, 0, 0)
    a('processes', f'pidfd {who}', by_descriptor)
    calls('tracing', [(f'ptrace {request:x} {who}', 101, 117, (request, pid, 0, 0)) for request in [16, 0x4206, 1, 4, 12, 0x4207]] + [(f'process_vm_readv {who}', 310, 270, (pid, 0, 0, 0, 0, 0)), (f'process_vm_writev {who}', 311, 271, (pid, 0, 0, 0, 0, 0)),
        (f'kcmp {who}', 312, 272, (pid, os.getpid(), 0, 0, 0)), (f'process_madvise {who}', 440, 440, (pid, 0, 0, 0, 0)), (f'pidfd_getfd {who}', 438, 438, (pid, 0, 0))])
    for name in ['environ', 'mem', 'maps', 'root/etc/hostname', 'cwd/.', 'fd/0', 'auxv', 'stack', 'io', 'pagemap']:
        a('tracing', f'{name} {who}', lambda: open(f'/proc/{pid}/{name}', 'rb').read(1))
# More rights.
calls('privilege', [('setuid', 105, 146, (0,)), ('setgid', 106, 144, (0,)), ('setreuid', 113, 145, (0, 0)), ('setregid', 114, 143, (0, 0)), ('setresuid', 117, 147, (0, 0, 0)), ('setresgid', 119, 149, (0, 0, 0)),
    ('setgroups', 116, 159, (1, s(bytes(4)))), ('capset', 126, 91, (s(struct.pack('II', 0x20080522, 0)), s(b'\xff' * 24))), ('chown', 260, 54, (AT, s('plain'), 0, 0, 0)), ('chown to another', 260, 54, (AT, s('plain'), 1, -1, 0)),
    ('chgrp', 260, 54, (AT, s('plain'), -1, 0, 0)), ('fchown', 93, 55, (fd, 0, 0)), ('ambient', 157, 167, (47, 2, 21, 0, 0)), ('securebits', 157, 167, (28, 1, 0, 0, 0)), ('new privileges', 157, 167, (38, 0, 0, 0, 0)), ('mm', 157, 167, (35, 1, 0, 0, 0)),
    ('seccomp off', 157, 167, (22, 0, 0, 0, 0)), ('nice', 141, 140, (0, 0, -20)), ('realtime', 144, 119, (0, 1, s(struct.pack('i', 50)))), ('realtime io', 251, 30, (1, 0, 1 << 13))])
calls('privilege', [(f'device {kind:o} {device:x}', 259, 33, (AT, s(f'device{kind:o}{device:x}'), kind | 0o666, device)) for kind in [0o20000, 0o60000] for device in [0x101, 0x102, 0x800, 0xfd00]])
for resource in [1, 4, 7] + ([6] if tasks else []):
    calls('privilege', [(f'limit {resource} {value}', 160, 164, (resource, s(struct.pack('QQ', value, value)))) for value in [1 << 40, (1 << 64) - 1]])
# Files of others.
own = f'{me}/own'
open(own, 'w').write('mine')
places = ['/', '/usr', '/usr/bin', '/etc', '/root', '/home', '/boot', '/opt', '/srv', '/var', '/sys/fs/cgroup', '/proc/sys/kernel', data, inside, f'{inside}/agents', f'{inside}/agents/bob', f'{inside}/shared', '/tmp/../etc', f'/proc/self/root{data}', f'/proc/self/cwd/../bob']
for n, place in enumerate(places):
    def through():
        os.symlink(place, f'{me}/to{n}')
        open(f'{me}/to{n}/breach', 'w')
    a('writes', 'create ' + place, lambda: open(f'{place}/breach', 'w'))
    a('writes', 'mkdir ' + place, lambda: os.mkdir(f'{place}/breach'))
    a('writes', 'symlink ' + place, lambda: os.symlink('x', f'{place}/breach'))
    a('writes', 'link ' + place, lambda: os.link(own, f'{place}/breach'))
    a('writes', 'rename ' + place, lambda: os.rename(own, f'{place}/breach'))
    a('writes', 'through a link ' + place, through)
for n, file in enumerate([f'{data}/token', f'{data}/ghost.db', f'{data}/sandbox-runner', f'{inside}/shared.txt', f'{inside}/agents/bob/note', '/etc/passwd', '/usr/bin/env', '/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/1/oom_score_adj']):
    def reopened():
        held = os.open(file, os.O_RDONLY)
        os.open(f'/proc/self/fd/{held}', os.O_WRONLY)
    a('changes', 'open ' + file, lambda: os.open(file, os.O_WRONLY))
    a('changes', 'append ' + file, lambda: os.open(file, os.O_RDWR | os.O_APPEND))
    a('changes', 'truncate ' + file, lambda: os.truncate(file, 0))
    a('changes', 'remove ' + file, lambda: os.unlink(file))
    a('changes', 'take ' + file, lambda: os.rename(file, f'{me}/taken{n}'))
    a('changes', 'reopen ' + file, reopened)
secrets = [f'{data}/token', f'{data}/ghost.db', '/etc/shadow', '/etc/gshadow', '/root/.ssh/id_ed25519', '/root/.bashrc', '/proc/kcore', '/proc/kmsg', '/dev/mem', '/dev/kmsg', '/dev/sda', '/dev/vda', '/proc/1/environ', '/var/log/dmesg']
for n, file in enumerate(secrets):
    def linked():
        os.symlink(file, f'{me}/secret{n}')
        open(f'{me}/secret{n}', 'rb').read(1)
    a('reads', 'open ' + file, lambda: open(file, 'rb').read(1))
    a('reads', 'by the root ' + file, lambda: open(f'/proc/self/root{file}', 'rb').read(1))
    a('reads', 'by .. ' + file, lambda: open('../' * 30 + file, 'rb').read(1))
    a('reads', 'by a link ' + file, linked)
    a('reads', 'by a hard link ' + file, lambda: os.link(file, f'{me}/hard{n}'))
for place in [f'{data}/token', f'{data}/ghost.db', '/root', '/home', '/boot', '/run', '/var/log', '/var/lib', '/var/spool', '/etc/shadow', '/etc/hostname', '/etc/cron.d', '/srv', '/mnt', '/media', '/sys/kernel', '/sys/class', '/var/cache', '/var/mail', '/lost+found', '/etc/ssh', '/proc/self/root/home']:
    a('watches', place, lambda: call(nr(254, 27), call(nr(294, 26), 0), s(place), 0x303))
for number, high in itertools.product([0x5412, 0x541C], [0, 1 << 32, 7 << 40]):
    for where in [0, 1, 2, fd]: a('terminal', f'{number:x} {high:x} {where}', lambda: call(nr(16, 29), where, number | high, s('x')))
