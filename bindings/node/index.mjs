import dlock from './index.js';

export const { Client, DlockError, Grant, errors, version } = dlock;
export default dlock;
