//! The page in headless Chromium, driven over WebDriver: load, move a slider, see results and plot
//! change, save, load again; and on a phone's width. With REMORA_SCREENSHOTS=DIR it leaves pictures
//! there.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};

use super::common::Place;
use super::common::trials::{find, program};
use super::requests::{exchange, serve};

/// Nothing that the page is waited for takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The arrow key to the right (WebDriver, 17.4.2).
const RIGHT: char = '\u{e014}';

/// chromedriver on a free port; it ends with its owner.
struct Driver {
    child: Child,
    port: u16,
}

impl Driver {
    fn start() -> Driver {
        let mut command = program("chromedriver");
        let mut child = command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        Driver { child, port: port.expect("chromedriver says its port") }
    }

    /// A command of WebDriver and its value.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.port,
            body.len()
        );
        let answer = exchange(("127.0.0.1", self.port), (head + &body).as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {answer:?}"));
        assert!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {answer}");
        serde_json::from_str::<Value>(body).unwrap()["value"].take()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A browser, and what it looks at.
struct Page {
    driver: Driver,
    session: String,
    url: String,
}

/// The browser ends with its page.
impl Drop for Page {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.driver.call("DELETE", &self.session, &json!({}));
        }
    }
}

/// Does `work` in a browser on the example's page; `more` are options of Chromium.
fn browse(more: Value, work: impl FnOnce(&Page, &Place)) {
    let place = Place::new();
    let (daemon, driver) = (serve(&place), Driver::start());
    let profile = place.here("profile");
    let mut options = json!({
        "binary": find("chromium"),
        "args": ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
            "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
            "--window-size=1200,900", format!("--user-data-dir={}", profile.display())],
        "prefs": { "download.default_directory": place.here(""), "download.prompt_for_download": false },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        options[key] = value.clone();
    }
    let asked = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
    let session = driver.call("POST", "/session", &asked)["sessionId"].as_str().unwrap().to_owned();
    let page = Page { driver, session: format!("/session/{session}"), url: format!("http://{}/", daemon.addr) };
    page.open();
    work(&page, &place);
}

impl Page {
    fn open(&self) {
        self.driver.call("POST", &format!("{}/url", self.session), &json!({ "url": self.url }));
        self.ready();
    }

    fn script(&self, text: &str) -> Value {
        self.driver.call("POST", &format!("{}/execute/sync", self.session), &json!({ "script": text, "args": [] }))
    }

    /// Waits until `condition`, a JavaScript expression, is true.
    fn until(&self, condition: &str) {
        let started = Instant::now();
        while self.script(&format!("return Boolean({condition})")) != true {
            let text = self.script("return document.body.innerText");
            assert!(started.elapsed() < PATIENCE, "waited in vain for {condition}: {text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn ready(&self) {
        self.until("document.getElementById('status')?.textContent === 'ready'");
    }

    /// Does something with the element at this selector.
    fn of_element(&self, css: &str, what: &str, how: Value) {
        let asked = json!({ "using": "css selector", "value": css });
        let found = self.driver.call("POST", &format!("{}/element", self.session), &asked);
        let id = found.as_object().and_then(|o| o.values().next()).and_then(Value::as_str).unwrap().to_owned();
        self.driver.call("POST", &format!("{}/element/{id}/{what}", self.session), &how);
    }

    fn html(&self, id: &str) -> String {
        self.script(&format!("return document.getElementById('{id}').innerHTML")).as_str().unwrap().to_owned()
    }

    fn value(&self, slider: &str) -> Value {
        self.script(&format!("return Number(document.querySelector('input[data-name=\"{slider}\"]').value)"))
    }

    fn load(&self, file: &Path) {
        self.of_element("#load", "value", json!({ "text": file }));
    }

    fn picture(&self, name: &str) {
        if let Some(dir) = std::env::var_os("REMORA_SCREENSHOTS") {
            let picture = self.driver.call("GET", &format!("{}/screenshot", self.session), &json!({}));
            let picture = base64::engine::general_purpose::STANDARD.decode(picture.as_str().unwrap()).unwrap();
            fs::write(Path::new(&dir).join(name), picture).unwrap();
        }
    }
}

pub(crate) fn in_a_browser() {
    browse(json!({}), |page, place| {
        page.picture("loaded.png");
        let (tables, curves) = (page.html("tables"), page.html("curves"));
        assert!(curves.contains("<polyline") && page.html("drawing").contains("access point"));
        assert!(page.html("sensitivity").contains("copy.1.file"));
        assert_eq!(page.value("copy.1.window").as_f64(), Some(2.0));
        move_slider(page);
        let moved = page.html("tables");
        assert!(moved != tables && page.html("curves") != curves, "results and plot follow");
        page.picture("moved.png");
        let saved = save(page, place);
        page.open();
        assert_eq!(page.value("copy.1.window").as_f64(), Some(2.0), "the page begins with the file");
        fs::rename(&saved, place.here("again.toml")).unwrap();
        page.load(&place.here("again.toml"));
        page.until("document.querySelector('input[data-name=\"copy.1.window\"]')?.value === '4'");
        page.ready();
        assert_eq!(page.html("tables"), moved, "what was saved gives the same again");
        bad_file(page, place);
        let from = page.script("return performance.getEntriesByType('resource').map(e => e.name)");
        let elsewhere: Vec<&Value> =
            from.as_array().unwrap().iter().filter(|n| !n.as_str().unwrap_or("").starts_with(&page.url)).collect();
        assert!(elsewhere.is_empty(), "{elsewhere:?}");
    });
}

/// Two steps to the right, by keys.
fn move_slider(page: &Page) {
    let keys = String::from_iter([RIGHT, RIGHT]);
    page.of_element("input[data-name='copy.1.window']", "value", json!({ "text": keys }));
    page.until("document.getElementById('along').textContent === 'copy.1.window'");
    page.ready();
    assert_eq!(page.value("copy.1.window").as_f64(), Some(4.0));
}

/// Saves by the button; the file's path.
fn save(page: &Page, place: &Place) -> PathBuf {
    page.of_element("#save", "click", json!({}));
    let path = place.here("office.toml");
    let started = Instant::now();
    while !path.exists() {
        assert!(started.elapsed() < PATIENCE, "nothing was saved");
        std::thread::sleep(Duration::from_millis(50));
    }
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("window = 4 ") && text.contains("# 1 to 4096; without it 1"), "{text}");
    path
}

fn bad_file(page: &Page, place: &Place) {
    let bad = place.here("bad.toml");
    fs::write(&bad, "[[medium]]\nname = \"e\"\ntype = \"ethernet\"\nspeed = \"10Mbit\"\n").unwrap();
    page.load(&bad);
    page.until("!document.getElementById('error').hidden");
    let why = page.script("return document.getElementById('error').textContent");
    let why = why.as_str().unwrap();
    assert!(["line 4", "speed", "rate"].iter().all(|w| why.contains(w)), "{why}");
}

pub(crate) fn on_a_phone() {
    let phone = json!({ "mobileEmulation": { "deviceMetrics": { "width": 360, "height": 740, "pixelRatio": 2.0 } } });
    browse(phone, |page, _place| {
        page.picture("phone.png");
        let sizes = page.script("return [innerWidth, document.documentElement.scrollWidth]");
        let (width, content) = (sizes[0].as_f64().unwrap(), sizes[1].as_f64().unwrap());
        assert!(width <= 361.0 && content <= width, "the page is {content} wide on {width}");
        let small = page.script("return getComputedStyle(document.querySelector('#tables td')).fontSize");
        let small: f64 = small.as_str().unwrap().trim_end_matches("px").parse().unwrap();
        assert!(small >= 12.0, "letters of {small} pixels");
        page.script("document.getElementById('curves').scrollIntoView()");
        page.picture("phone-curves.png");
        page.script("document.getElementById('inputs').scrollIntoView()");
        page.picture("phone-inputs.png");
    });
}
