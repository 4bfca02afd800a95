/* A program that needs helper.dll: what happens to it is decided by the helper.dll that it finds. */
__declspec(dllimport) int help(int number);

int main(void) { return help(1) ? 0 : 0; }
