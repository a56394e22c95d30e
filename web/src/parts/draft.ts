// What was typed into a form and not sent yet. It is kept for the tab, so Esc and a reload lose nothing. Secrets are never kept.
import { DRAFTS } from '../api';
import type { Action, Values } from './act';

const KEPT = 20;
const SECRET = /password|credentials|secret|_key|:\/\/[^/]*@/i;

/** Values by the title of their form, oldest first. */
function all(): [string, Values][] {
  try { return JSON.parse(sessionStorage.getItem(DRAFTS) ?? '[]') as [string, Values][]; } catch { return []; }
}

export const draftOf = (title: string): Values => all().find(([name]) => name === title)?.[1] ?? {};

/** Keeps the values that differ from what the form began with. */
export function keepDraft(action: Action, values: Values): void {
  const isSecret = (name: string, kind: string | undefined, value: string) => kind === 'secret' || [action.title, name, value].some((text) => SECRET.test(text));
  const typed = (action.fields ?? []).filter(({ name, kind, value }) => values[name] !== undefined && values[name] !== value && !isSecret(name, kind, values[name]));
  const others = all().filter(([title]) => title !== action.title);
  const kept = typed.length ? [...others, [action.title, Object.fromEntries(typed.map(({ name }) => [name, values[name]]))]] : others;
  // The browser may be out of room: then the draft lasts as long as the form.
  try { sessionStorage.setItem(DRAFTS, JSON.stringify(kept.slice(-KEPT))); } catch { sessionStorage.removeItem(DRAFTS); }
}

export const dropDraft = (action: Action): void => keepDraft(action, {});
