// Users, sessions and shared keys: the calls of docs/users.md.

import { Problem, call, type Schemas } from "./http";
import type { KeyHeader } from "./projects";

export type User = Schemas["UserView"];
export type Kdf = Schemas["KdfSettings"];
export type Member = Schemas["MemberView"];
export type OwnKey = Schemas["OwnKey"];

/** The user of this session, or whether there are users at all. */
export async function session(): Promise<{ user: User | null; hasUsers: boolean }> {
  try {
    return { user: await call<User>("GET", "/api/auth/session"), hasUsers: true };
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return { user: null, hasUsers: error.body.hasUsers === true };
    throw error;
  }
}

export const kdf = (name: string) => call<Kdf>("GET", `/api/auth/kdf?name=${encodeURIComponent(name)}`);
export const register = (body: Schemas["Registration"]) => call<Schemas["PublicUser"]>("POST", "/api/auth/register", { body });
export const logIn = (body: Schemas["Login"]) => call<User>("POST", "/api/auth/login", { body });
export const logOut = () => call<void>("POST", "/api/auth/logout", { body: {} });
export const changePassphrase = (body: Schemas["PassphraseChange"]) => call<User>("POST", "/api/auth/passphrase", { body });
export const recover = (body: Partial<Schemas["Recovery"]>) => call<User>("POST", "/api/auth/recover", { body });
export const user = (name: string) => call<Schemas["PublicUser"]>("GET", `/api/users/${encodeURIComponent(name)}`);

const at = (project: string, rest: string) => `/api/projects/${encodeURIComponent(project)}${rest}`;

export const members = (project: string) =>
  call<Schemas["MemberList"]>("GET", at(project, "/members")).then((list) => list.members);
export const addMember = (project: string, name: string, wrappedKey: string) =>
  call<Member>("POST", at(project, "/members"), { body: { name, wrappedKey } });
export const removeMember = (project: string, name: string) =>
  call<void>("DELETE", at(project, `/members/${encodeURIComponent(name)}`));
export const ownKey = (project: string) => call<OwnKey>("GET", at(project, "/key"));
export const nextKey = (project: string, body: Schemas["NextKey"], headers: KeyHeader) =>
  call<OwnKey>("PUT", at(project, "/key"), { body, headers });
