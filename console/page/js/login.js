// The login. The password is sent once, for a cookie that no script can read, and kept nowhere.
import { html, useEffect, useRef, useState } from "./lib.js";
import { ask } from "./api.js";
import { enter, useShared } from "./state.js";

export function Login() {
  const { left } = useShared();
  const [fault, setFault] = useState("");
  const [isBusy, setBusy] = useState(false);
  const first = useRef(null);
  useEffect(() => {
    document.title = "Log in – Leveret";
    first.current.focus();
  }, []);
  async function submit(event) {
    event.preventDefault();
    const { user, password } = event.currentTarget.elements;
    setBusy(true);
    setFault("");
    try {
      await ask("POST", "login", { form: { username: user.value, password: password.value } });
      enter(await ask("GET", "leveret/session"));
    } catch (error) {
      setFault(error.isLoggedOut ? "User or password is wrong." : error.message);
      setBusy(false);
      password.value = "";
      password.focus();
    }
  }
  return html`<main class="login">
    <form onSubmit=${submit}>
      <h1><img src="icon.svg" alt="" width="32" height="32" /> Leveret</h1>
      ${left && html`<p class="dim">The session of ${left} is over. What is half written stays until another user logs in, except passwords.</p>`}
      <label>User <input name="user" ref=${first} autocomplete="username" required /></label>
      <label>Password <input name="password" type="password" autocomplete="current-password" /></label>
      <p class="fault" role="alert">${fault}</p>
      <button class="main" type="submit" disabled=${isBusy}>Log in</button>
    </form>
  </main>`;
}
