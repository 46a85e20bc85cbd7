//! An FTP server on a bench: vsftpd with settings of its own, for `put` by an anonymous user who is
//! root in the bench's directory.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use guest::{Scratch, find};
use remora_host::emulate::{Emulator, Station};

use crate::wireless::real::bench::READY;
use crate::wireless::real::program::{Program, Start};
use crate::wireless::real::{Result, failed, failed_with};

const PORT: u16 = 2121;

/// The running server.
#[derive(Debug)]
pub(super) struct Ftp(Program);

impl Ftp {
    pub(super) fn start(emulator: &Emulator, scratch: &Scratch) -> Result<Ftp> {
        let (root, empty) = (scratch.path("srv"), scratch.path("run-ftp"));
        let settings = format!(
            "listen=YES\nlisten_ipv6=NO\nlisten_port={PORT}\nbackground=NO\nrun_as_launching_user=YES\n\
             anonymous_enable=YES\nno_anon_password=YES\nanon_root={}\nlocal_enable=NO\nwrite_enable=YES\n\
             anon_upload_enable=YES\nanon_world_readable_only=NO\nanon_umask=022\nallow_writeable_chroot=YES\n\
             secure_chroot_dir={}\nseccomp_sandbox=NO\nftp_username=root\npasv_enable=YES\n\
             connect_from_port_20=NO\nxferlog_enable=NO\nuse_localtime=NO\n",
            root.display(),
            empty.display(),
        );
        let file = scratch.path("vsftpd.conf");
        fs::write(&file, settings).map_err(failed_with("the FTP server's settings"))?;
        let vsftpd = find("vsftpd").ok_or_else(|| failed("vsftpd is not installed".into()))?;
        let line = [vsftpd, file].map(|path| path.to_string_lossy().into_owned());
        let ftp = Ftp(Program::start(emulator, scratch, Station::Base, &Start::new("vsftpd", &line))?);
        ftp.wait(emulator)?;
        Ok(ftp)
    }

    fn wait(&self, emulator: &Emulator) -> Result<()> {
        let deadline = Instant::now() + READY;
        let at = SocketAddr::from((emulator.addr(Station::Base), PORT));
        while emulator.within(Station::Base, || TcpStream::connect_timeout(&at, Duration::from_millis(500))).is_err() {
            if Instant::now() >= deadline {
                return Err(failed(format!("the FTP server does not answer; {}", self.0.words())));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// An error if it has ended.
    pub(super) fn must_run(&mut self) -> Result<()> {
        self.0.must_run()
    }

    /// The command that puts `local` there as `name`.
    pub(super) fn put(emulator: &Emulator, local: &Path, name: &str) -> Vec<String> {
        let script = format!(
            "set net:max-retries 1; set net:reconnect-interval-base 1; set ftp:use-mdtm no; set ftp:use-site-utime no; \
             set ftp:use-site-utime2 no; set cmd:fail-exit yes; open -p {PORT} {}; put {} -o {name}",
            emulator.addr(Station::Base),
            local.display(),
        );
        ["lftp", "--norc", "-c", &script].map(str::to_owned).into()
    }
}
