//! A page in Chromium, over the DevTools protocol.

use std::collections::HashSet;

use serde_json::{Value, json};
use tollgate_test_servers::Chromium;

/// A page in a browser of its own.
pub(crate) struct Page {
    chromium: Chromium,
    session: String,
    commands: u64,
    /// What the page logged, such as what its content security policy blocked.
    logged: Vec<String>,
}

impl Page {
    /// Opens a page and waits until it is loaded.
    pub(crate) fn open(url: &str) -> Page {
        let chromium = Chromium::start().unwrap();
        let mut page = Page { chromium, session: String::new(), commands: 0, logged: Vec::new() };
        let target = page.command("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = page.command("Target.attachToTarget", attach);
        page.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Log", "Page", "Runtime"] {
            page.command(&format!("{domain}.enable"), json!({}));
        }
        page.command("Page.navigate", json!({ "url": url }));
        page.wait_for(&format!("location.href === {url:?} && document.readyState === 'complete'"));
        page
    }

    /// Waits until a JavaScript expression is true, which it checks at each change of the page.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let seen = self.eval(&format!(
            "new Promise((resolve) => {{
               const observer = new MutationObserver(() => check());
               const finish = (seen) => {{ observer.disconnect(); resolve(seen); }};
               const check = () => {{ if ({expression}) finish(''); }};
               observer.observe(document, {{ subtree: true, childList: true, attributes: true, characterData: true }});
               document.addEventListener('readystatechange', check);
               setTimeout(() => finish('the page: ' + document.body.innerText), 30_000);
               check();
             }})"
        ));
        assert_eq!(seen, "", "{expression} is not true");
    }

    /// Returns the value of a JavaScript expression.
    #[track_caller]
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let evaluate = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.command("Runtime.evaluate", evaluate);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Returns the text of the first element that matches a selector.
    #[track_caller]
    pub(crate) fn text(&mut self, selector: &str) -> String {
        self.eval(&format!("document.querySelector({selector:?}).textContent")).as_str().unwrap().to_owned()
    }

    /// Clicks the middle of an element.
    pub(crate) fn click(&mut self, selector: &str) {
        let place = self.eval(&format!(
            "(({{ x, y, width, height }}) => ({{ x: x + width / 2, y: y + height / 2 }}))
             (document.querySelector({selector:?}).getBoundingClientRect())"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let (x, y) = (&place["x"], &place["y"]);
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.command("Input.dispatchMouseEvent", event);
        }
    }

    /// Presses a key, with the text that it types.
    pub(crate) fn press(&mut self, key: &str, code: u8, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let typed = if kind == "keyDown" { text } else { "" };
            let event = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code, "text": typed });
            self.command("Input.dispatchKeyEvent", event);
        }
    }

    /// Emulates a screen of this width in pixels, and a color scheme.
    pub(crate) fn emulate(&mut self, width: u32, scheme: &str) {
        let screen = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": true });
        self.command("Emulation.setDeviceMetricsOverride", screen);
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.command("Emulation.setEmulatedMedia", media);
    }

    /// Returns what the page logged and its exceptions, without answers that refuse a request.
    pub(crate) fn logged(&mut self) -> HashSet<String> {
        self.eval("0");
        self.logged
            .iter()
            .filter(|line| !line.contains("the server responded with a status of"))
            .cloned()
            .collect()
    }

    #[track_caller]
    fn command(&mut self, method: &str, params: Value) -> Value {
        self.commands += 1;
        let mut command = json!({ "id": self.commands, "method": method, "params": params });
        if !self.session.is_empty() {
            command["sessionId"] = self.session.as_str().into();
        }
        self.chromium.send(&command.to_string()).unwrap();
        loop {
            let mut message: Value = serde_json::from_str(&self.chromium.receive().unwrap()).unwrap();
            if message["id"] == self.commands {
                assert!(message.get("error").is_none(), "{command}: {message}");
                return message["result"].take();
            }
            if ["Log.entryAdded", "Runtime.exceptionThrown"].iter().any(|kind| message["method"] == *kind) {
                self.logged.push(message["params"].to_string());
            }
        }
    }
}
