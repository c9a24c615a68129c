// The language of the page.

import { en, type Strings } from "./en";

export const strings: Strings = en;
